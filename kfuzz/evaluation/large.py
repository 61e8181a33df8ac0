"""Cases with arguments of billions of elements, judged in slices.

A float64 copy of 2^31 elements takes 16 GiB, and an acceptance several of them. Where
rows do not depend on one another, the oracle sees a slice of them at a time, on the
device, and every slice is judged: none is taken for another. Where they may, or the
oracle needs an argument whole, the case is not judged at all.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import torch
from torch import Tensor

from kfuzz.contracts.binding import Derived
from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.evidence import Diagnosis, Evidence
from kfuzz.contracts.language import Probe
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import ASKING, first_nonfinite
from kfuzz.contracts.reading import beyond_core, miss_of, worst_ratio
from kfuzz.contracts.suite import judge
from kfuzz.core.errors import BindingError, BuildError
from kfuzz.core.recipe import (
    Case,
    Destination,
    Fill,
    TensorSpec,
    config_of,
    contiguous_strides,
    poison_of,
)
from kfuzz.core.verdict import LIST, CaseReport, Failure, Verdict
from kfuzz.evaluation.calling import Caller, keywords_of, posed, unsupported_because
from kfuzz.evaluation.diagnosis import judge_explained
from kfuzz.evaluation.probes.repeats import axis_of_rows, batch_axis
from kfuzz.execution.calls import batches
from kfuzz.execution.calls.batches import LargePlacement
from kfuzz.execution.calls.results import read_results
from kfuzz.execution.calls.tuning import held
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.memory.poison import fill_poison
from kfuzz.execution.values.fills import can_stretch, logical_values, stretch
from kfuzz.execution.values.items import is_shared
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.accumulation import as_integers
from kfuzz.numerics.run import Expected, Raised, Run, Touch

# How a large case is cut into rows that do not depend on one another.

TRIED: Final = (2, 3)
"""Rows of the slices that show which axis of a result is cut, and that what is admitted
for a row does not depend on others."""

# The same sums in another number of rows may be grouped in another way.
_SAME: Final = 1e-9


@dataclass(frozen=True)
class Cut:
    """How a case is cut into rows.

    Attributes:
        axis: the first dimension of every argument that is cut; "" where all
            elements are rows of one, as of elementwise operators.
        rows: how many there are.
        names: the arguments that are cut.
        outputs: per output the axis of its rows.
        expected: metadata of each whole output.
        at_once: rows of a slice.
    """

    axis: str
    rows: int
    names: tuple[str, ...]
    outputs: Mapping[str, int]
    expected: Mapping[str, Expected]
    at_once: int

    def place(self, output: str, start: int, index: tuple[int, ...]) -> tuple[int, ...]:
        """Return where in the whole output an element of a slice lies."""
        if not self.axis:
            at = np.unravel_index(start + index[0], self.expected[output].shape)
            return tuple(int(i) for i in at)
        axis = self.outputs[output]
        return (*index[:axis], start + index[axis], *index[axis + 1 :])

    def slice_of(self, output: str, y: Tensor, start: int, stop: int) -> Tensor:
        """Return the rows of an output, contiguous."""
        if not self.axis:
            return y.contiguous().view(-1)[start:stop]
        return y.narrow(self.outputs[output], start, stop - start).contiguous()


class Unsliceable(Exception):
    """Why a case cannot be judged in slices."""


def row_axis(
    operator: Operator, case: Case, can_part: Callable[[TensorSpec], bool] = can_stretch
) -> str | None:
    """Return the dimension along which a case may be cut; "" for single elements.

    None where there is none, an argument is too large to be seen whole, or values
    cannot be had in parts.

    Args:
        operator: what is computed.
        case: the whole case.
        can_part: whether an argument's values can be.
    """
    specs = case.tensors.values()
    if any(s.below for s in specs):
        return None
    together = all(p.dims == "*" for p in operator.tensors.values())
    shapes = {s.shape for s in specs}
    if together and operator.dim is None and operator.reduced is None:
        return "" if len(shapes) == 1 and all(map(can_part, specs)) else None
    axis = batch_axis(operator, case)
    if axis is None:
        return None
    for spec in specs:
        cut = axis in spec.axes
        row = spec.numel // case.dims[axis] if cut else spec.numel
        if row > batches.SLICE_ELEMENTS or (cut and not can_part(spec)):
            return None
    return axis


def part_of(
    case: Case,
    axis: str,
    start: int,
    stop: int,
    elements: Callable[[str, int, int], Tensor],
) -> Derived:
    """Return rows of a case, as a case of its own.

    Args:
        case: the whole one.
        axis: as of `Cut`.
        start: number of the first row.
        stop: one past the number of the last.
        elements: returns elements of an argument, from one number to another, in C
            order.
    """
    tensors, values = {}, {}
    for name, spec in case.tensors.items():
        if axis and axis not in spec.axes:
            tensors[name] = spec
            values[name] = elements(name, 0, spec.numel).view(spec.shape)
            continue
        row = spec.numel // spec.shape[0] if axis else 1
        shape = (stop - start, *spec.shape[1:]) if axis else (stop - start,)
        axes = spec.axes if axis else ("d0",)
        values[name] = elements(name, start * row, stop * row).view(shape)
        # The values are given apart: a recipe has to name some.
        tensors[name] = TensorSpec(shape, axes, spec.dtype, fill=Fill("zeros"))
    return Derived(replace(case, tensors=tensors, edge=None), values)


def cut_of(
    operator: Operator,
    case: Case,
    axis: str,
    accepted: Callable[[int, int], Mapping[str, Acceptance]],
    elements: int,
) -> Cut:
    """Return how a case is cut.

    Args:
        operator: what is computed.
        case: the whole case.
        axis: as `row_axis` says.
        accepted: returns what is admitted for rows of it.
        elements: most of a slice.

    Raises:
        Unsliceable: if it cannot be.
        BindingError: if the operator's oracle or error model is malformed.
    """
    names = tuple(n for n, s in case.tensors.items() if not axis or axis in s.axes)
    rows = case.dims[axis] if axis else case.tensors[names[0]].numel
    few, more = TRIED
    if rows < few + more:
        raise Unsliceable(f"{rows} rows are too few to be cut")
    try:
        spans = ((0, few), (few, few + more), (0, few + more))
        first, second, both = (accepted(*span) for span in spans)
    except BindingError:
        raise
    except Exception as error:
        raise Unsliceable(f"outside the oracle's domain: {error}") from None
    outputs: dict[str, int] = {}
    expected: dict[str, Expected] = {}
    widest = max(case.tensors[n].numel // rows for n in names)
    for name, one in first.items():
        at = axis_of_rows(one.shape, second[name].shape, TRIED)
        if at is None or not adds_up(one, second[name], both[name], at):
            raise Unsliceable(f"rows of {name} depend on one another")
        shape = (*one.shape[:at], rows, *one.shape[at + 1 :])
        if not axis:
            shape = case.tensors[names[0]].shape
        outputs[name] = at
        expected[name] = Expected(shape, one.output.dtype)
        widest = max(widest, math.prod(shape) // rows)
    for axes in operator.spaces(case):
        sizes = [case.dims[d] for d in axes]
        widest = max(widest, math.prod(sizes) // rows)
    at_once = elements // max(widest, 1)
    if not at_once:
        raise Unsliceable(f"one row has {widest} elements")
    return Cut(axis, rows, names, outputs, expected, at_once)


def adds_up(one: Acceptance, other: Acceptance, both: Acceptance, axis: int) -> bool:
    """Whether two slices are admitted what they are as one."""
    if (one.relation is None) is not (both.relation is None):
        return False
    for name in ("reference", "low", "high"):
        parts = [getattr(a, name) for a in (one, other)]
        joined, whole = torch.cat(parts, dim=axis + 1), getattr(both, name)
        if joined.shape != whole.shape:
            return False
        scale = whole.nan_to_num(0.0, 0.0, 0.0).abs().max() if whole.numel() else 0.0
        near = _SAME * float(scale)
        if not torch.allclose(joined, whole, rtol=_SAME, atol=near, equal_nan=True):
            return False
    return True


WHOLE: Final = frozenset(
    c.id for c in ATTRIBUTION if c.in_batch is not None and not c.of_values
)
"""Classes that look at the call as a whole."""

# Rows around a miss that are run by themselves.
_AROUND: Final = 4


class LargeJudge:
    """Runs one large case of a kernel and judges it.

    Attributes:
        lost: whether the device can do nothing more in this process.
    """

    def __init__(
        self, caller: Caller, case: Case, passes: Callable[[Derived], bool | None]
    ) -> None:
        """Take what the case is judged with.

        Args:
            caller: calls the kernel, on small cases alone.
            case: its large case, a recipe.
            passes: whether the kernel conforms on a small case.
        """
        self.kernel, self.case, self._step = caller.kernel, case, caller.step
        self.device = caller.memory.device
        self.lost = False
        self._passes = passes
        self._small = {
            name: logical_values(case, name, self.device)
            for name, spec in case.tensors.items()
            if spec.numel <= batches.SLICE_ELEMENTS
        }
        shared = {
            name: logical_values(case, name, self.device)
            for name, spec in case.tensors.items()
            if is_shared(spec)
        }
        self._keywords = keywords_of(caller.kernel, case, shared, caller.config)

    def report(self, classes: frozenset[str]) -> CaseReport:
        """Run and judge the case under these classes.

        Raises:
            BindingError: if the operator's oracle or error model is malformed.
        """
        try:
            cut = self._cut()
        except Unsliceable as why:
            return _unsupported(str(why))
        wanted = batches.wanted_bytes(self.case.tensors, cut.expected)
        if lack := batches.lacking(wanted, self.device):
            shapes = ", ".join(str(list(s.shape)) for s in self.case.tensors.values())
            return _unsupported(f"{shapes}, {lack}")
        try:
            return self._judged(cut, classes)
        except torch.OutOfMemoryError as error:
            return _unsupported(f"out of memory: {str(error).splitlines()[0]}")
        finally:
            if not self.lost:
                backend_of(self.device).give_back_memory()

    def part(self, axis: str, start: int, stop: int) -> Derived:
        """Return rows `start` to `stop` of the case, as a case of its own."""
        return part_of(self.case, axis, start, stop, self._elements)

    def _elements(self, name: str, start: int, stop: int) -> Tensor:
        if name in self._small:
            return self._small[name].reshape(-1)[start:stop]
        return stretch(self.case.tensors[name], start, stop, self.device)

    def _evidence(self, part: Derived) -> Evidence:
        """Return the evidence of a part before it has run.

        What the oracle raises there is raised.
        """
        made = posed(self.kernel.operator, self.kernel.declaration, part)
        if made.refused is not None:
            raise made.refused
        return replace(made, explicit=self.kernel.explicit)

    def _cut(self) -> Cut:
        """Return how the case is cut.

        Raises:
            Unsliceable: if it cannot be.
        """
        operator, case = self.kernel.operator, self.case
        axis = row_axis(operator, case)
        if any(output.endswith(LIST) for output in operator.outputs):
            raise Unsliceable("how many results there are may depend on the rows")
        if axis is None:
            raise Unsliceable(f"{operator.name} has no independent rows there")
        asking = self.kernel.declaration.nonfinite in ASKING
        if asking and first_nonfinite(operator, self._small) is not None:
            raise Unsliceable("an argument holds NaN or infinities")

        def accepted(start: int, stop: int) -> Mapping[str, Acceptance]:
            return self._evidence(self.part(axis, start, stop)).acceptance or {}

        return cut_of(operator, case, axis, accepted, batches.SLICE_ELEMENTS)

    def _judged(self, cut: Cut, classes: frozenset[str]) -> CaseReport:
        claims, poison = self.kernel.declaration, poison_of(self.case)
        whole = self._view(cut)  # after a fault nothing can be made
        given = _destinations(cut.expected) if claims.out else {}
        specs = {**self.case.tensors, **{n: d.spec() for n, d in given.items()}}
        placement = LargePlacement(
            specs, device=self.device, alignment=claims.alignment, poison=poison
        )
        for name, elements in placement.elements.items():
            self._fill(name, elements, specs[name])
            if name in given:
                raw = elements.view(torch.uint8)
                fill_poison(raw, elements.dtype, poison)
        self._step()
        called = held(self.kernel.taking(self.case.tensors), self.kernel.tuners)
        run, strays = batches.run_large(
            partial(called, *placement.tensors.values(), **self._keywords),
            device=self.device,
            fresh=poison,
            config=config_of(self.case),
        )
        self._step()
        if run.raised is not None:
            return self._of_raised(whole, run.raised, classes)
        read = read_results(
            run.returned,
            cut.expected,
            self.device,
            inplace={n: placement.tensors[n] for n in claims.inplace},
            memory={n: placement.tensors[n] for n in given},
            copy=False,
        )
        base = Run(
            metadata=read.problem,
            touches=tuple(placement.touches()),
            strays=strays,
            unchecked=run.unchecked,
        )
        evidence = replace(whole, runs={Probe.BASE: base})
        failure = judge(evidence, classes & WHOLE)[1]
        if failure is not None:
            return _failed(failure)
        return self._sliced(cut, classes, placement, read.outputs)

    def _fill(self, name: str, elements: Tensor, spec: TensorSpec) -> None:
        if name in self._small:
            elements.copy_(self._small[name].reshape(-1))
        elif name in self.case.tensors:
            at_once = batches.SLICE_ELEMENTS
            batches.fill_stretches(elements, spec, at_once=at_once, step=self._step)

    def _view(self, cut: Cut) -> Evidence:
        """Return the whole case as the classes see it that look at no values, not run.

        The first rows stand for what is admitted.
        """
        return replace(
            self._evidence(self.part(cut.axis, 0, TRIED[0])),
            case=self.case,
            runs={Probe.BASE: Run()},
            lacking=self.kernel.arguments.lacking(self.case.tensors),
        )

    def _of_raised(
        self, whole: Evidence, raised: Raised, classes: frozenset[str]
    ) -> CaseReport:
        if raised.build:
            raise BuildError(raised.build)
        if raised.memory:
            return _unsupported(f"out of memory: {raised.message}")
        base = Run(raised=raised)
        if why := unsupported_because(base):
            return CaseReport({}, unsupported=why, needs_gpu=bool(raised.gpu))
        self.lost = raised.lost
        evidence = replace(whole, runs={Probe.BASE: base})
        failure = judge(evidence, classes & {"K-LIV-01"})[1]
        if failure is not None:
            return _failed(failure)
        aspects = beyond_core(evidence)
        return CaseReport(
            {}, refusal=aspects[0] if aspects else None, example=raised.message
        )

    def _sliced(
        self,
        cut: Cut,
        classes: frozenset[str],
        placement: LargePlacement,
        outputs: Mapping[str, Tensor],
    ) -> CaseReport:
        """Judge the results slice by slice, up to the first that fails."""
        found: list[Mapping[str, Verdict]] = []
        ratio = 0.0
        for start in range(0, cut.rows, cut.at_once):
            self._step()
            stop = min(start + cut.at_once, cut.rows)
            part = self.part(cut.axis, start, stop)
            made = {n: cut.slice_of(n, y, start, stop) for n, y in outputs.items()}
            changed = tuple(self._changed(cut, part, placement, start))
            evidence = self._evidence(part)
            evidence = evidence.running(
                {Probe.BASE: Run(outputs=made, touches=changed)}
            )
            miss = miss_of(evidence)
            if miss is not None:
                row = miss.index[cut.outputs[miss.output]]
                alone = "alone" if self._is_right_alone(cut, start + row) else ""
                evidence = evidence.knowing(Diagnosis(alone))
            evidence, verdicts, failure = judge_explained(evidence, classes)
            ratio = max(ratio, worst_ratio(evidence))
            found.append(verdicts)
            if failure is not None:
                failed = _told(failure, cut, start, stop)
                return replace(_failed(failed), ratio=ratio)
        together: dict[str, Verdict] = {}  # one that is undecided leaves the case so
        for each in found:
            for name, verdict in each.items():
                if together.get(name) is not Verdict.UNDER_SPECIFIED:
                    together[name] = verdict
        return CaseReport(together, ratio=ratio)

    def _changed(
        self, cut: Cut, part: Derived, placement: LargePlacement, start: int
    ) -> Iterator[Touch]:
        """Yield the elements of arguments that hold other bits than they were given."""
        for name, wanted in part.values.items():
            if name in self.kernel.declaration.inplace:
                continue
            if name not in cut.names and start:
                continue  # seen with the first slice
            spec = self.case.tensors[name]
            row = spec.numel // cut.rows if name in cut.names else 0
            held = placement.elements[name][start * row :][: wanted.numel()]
            differ = as_integers(held) != as_integers(wanted.reshape(-1))
            places = differ.nonzero().flatten()
            if places.numel():
                at = np.unravel_index(start * row + int(places[0]), spec.shape)
                index = tuple(int(i) for i in at)
                count, size = places.numel(), held.element_size()
                yield Touch(name, "element", count, 0, size, index)

    def _is_right_alone(self, cut: Cut, row: int) -> bool | None:
        """Whether the rows around a miss are right by themselves."""
        start, stop = max(0, row - _AROUND), min(row + _AROUND, cut.rows)
        return self._passes(self.part(cut.axis, start, stop))


def _unsupported(why: str) -> CaseReport:
    return CaseReport({}, unsupported=f"a large case: {why}")


def _failed(failure: Failure) -> CaseReport:
    return CaseReport({failure.contract: Verdict.VIOLATES}, failure=failure)


def _told(failure: Failure, cut: Cut, start: int, stop: int) -> Failure:
    """Return the failure of a slice with its place in the whole."""
    message = failure.message
    index = failure.index
    if index is not None and failure.output in cut.outputs:
        local = f"{failure.output}[{', '.join(map(str, index))}]"
        index = cut.place(failure.output, start, index)
        whole = f"{failure.output}[{', '.join(map(str, index))}]"
        message = message.replace(local, whole)
    kind = "rows" if cut.axis else "elements"
    where = f"in the slice of {kind} {start} to {stop - 1} of {cut.rows}"
    return replace(failure, index=index, message=f"{message}; {where}")


def _destinations(expected: Mapping[str, Expected]) -> dict[str, Destination]:
    return {
        name: Destination(
            wanted.shape,
            str(wanted.dtype).removeprefix("torch."),
            contiguous_strides(wanted.shape),
        )
        for name, wanted in expected.items()
    }
