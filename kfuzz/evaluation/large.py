"""Cases with arguments of billions of elements, judged in slices.

A float64 copy of 2^31 elements takes 16 GiB, and an acceptance several of them. Where
rows do not depend on one another, the oracle sees a slice of them at a time, on the
device, and every slice is judged: none is taken for another. Where they may, or the
oracle needs an argument whole, the case is not judged at all.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import torch
from torch import Tensor

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.derive import Derived
from kfuzz.contracts.evidence import Diagnosis, Evidence
from kfuzz.contracts.judge import judge
from kfuzz.contracts.language import Probe
from kfuzz.contracts.oracle import accept, pose
from kfuzz.contracts.reading import beyond_core, miss_of, worst_ratio
from kfuzz.contracts.unpromised import ASKING, first_nonfinite
from kfuzz.core.case_surroundings import config_of, poison_of
from kfuzz.core.errors import BuildError
from kfuzz.core.recipe import Case, Destination, TensorSpec, contiguous_strides
from kfuzz.core.results import LIST
from kfuzz.core.verdict import CaseReport, Failure, Verdict
from kfuzz.evaluation.calling import unsupported_because
from kfuzz.evaluation.cutting import (
    TRIED,
    Cut,
    Unsliceable,
    cut_of,
    part_of,
    row_axis,
)
from kfuzz.evaluation.other_declarations import judge_explained
from kfuzz.execution.calls import large
from kfuzz.execution.calls.large import LargePlacement
from kfuzz.execution.calls.results import read_results
from kfuzz.execution.calls.tuners import held
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.memory.poison import fill_poison
from kfuzz.execution.values.fills import logical_values, stretch
from kfuzz.numerics.acceptance import Acceptance, Problem
from kfuzz.numerics.elements import as_integers
from kfuzz.numerics.run import Expected, Raised, Run, Touch

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
        self,
        kernel: BoundKernel,
        case: Case,
        device: torch.device,
        *,
        keywords: Mapping[str, object],
        step: Callable[[], None],
        passes: Callable[[Derived], bool | None],
    ) -> None:
        """Take what the case is judged with.

        Args:
            kernel: the bound kernel.
            case: its large case, a recipe.
            device: where it runs.
            keywords: the scalars that it takes.
            step: called before every piece of work, so that a watchdog can tell it
                from a call that hangs.
            passes: whether the kernel conforms on a small case.
        """
        self.kernel = kernel
        self.case = case
        self.device = device
        self.lost = False
        self._keywords = keywords
        self._step = step
        self._passes = passes
        self._small = {
            name: logical_values(case, name, device)
            for name, spec in case.tensors.items()
            if spec.numel <= large.SLICE_ELEMENTS
        }

    def report(self, classes: frozenset[str]) -> CaseReport:
        """Run and judge the case under these classes.

        Raises:
            BindingError: if the operator's oracle or error model is malformed.
        """
        try:
            cut = self._cut()
        except Unsliceable as why:
            return CaseReport({}, unsupported=f"a large case: {why}")
        wanted = large.wanted_bytes(self.case.tensors, cut.expected)
        if lack := large.lacking(wanted, self.device):
            shapes = ", ".join(str(list(s.shape)) for s in self.case.tensors.values())
            return CaseReport({}, unsupported=f"a large case, {shapes}, {lack}")
        try:
            return self._judged(cut, classes)
        except torch.OutOfMemoryError as error:
            text = f"a large case: out of memory: {str(error).splitlines()[0]}"
            return CaseReport({}, unsupported=text)
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

    def _accepted(self, part: Derived) -> tuple[Problem, dict[str, Acceptance]]:
        operator = self.kernel.operator
        problem = pose(operator, part.case, part.values, self.kernel.declaration)
        return problem, accept(operator, problem)

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

        def accepted(start: int, stop: int) -> dict[str, Acceptance]:
            return self._accepted(self.part(axis, start, stop))[1]

        return cut_of(operator, case, axis, accepted, large.SLICE_ELEMENTS)

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
        run, strays = large.run_large(
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
            at_once = large.SLICE_ELEMENTS
            large.fill_stretches(elements, spec, at_once=at_once, step=self._step)

    def _view(self, cut: Cut) -> Evidence:
        """Return the whole case as the classes see it that look at no values, not run.

        The first rows stand for what is admitted.
        """
        problem, accepted = self._accepted(self.part(cut.axis, 0, TRIED[0]))
        return Evidence(
            case=self.case,
            operator=self.kernel.operator,
            declaration=self.kernel.declaration,
            problem=problem,
            acceptance=accepted,
            runs={Probe.BASE: Run()},
            explicit=self.kernel.explicit,
            lacking=self.kernel.arguments.lacking(self.case.tensors),
        )

    def _of_raised(
        self, whole: Evidence, raised: Raised, classes: frozenset[str]
    ) -> CaseReport:
        if raised.build:
            raise BuildError(raised.build)
        if raised.memory:
            text = f"a large case: out of memory: {raised.message}"
            return CaseReport({}, unsupported=text)
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
            problem, accepted = self._accepted(part)
            made = {n: cut.slice_of(n, y, start, stop) for n, y in outputs.items()}
            changed = tuple(self._changed(cut, part, placement, start))
            evidence = Evidence(
                case=part.case,
                operator=self.kernel.operator,
                declaration=self.kernel.declaration,
                problem=problem,
                acceptance=accepted,
                runs={Probe.BASE: Run(outputs=made, touches=changed)},
                explicit=self.kernel.explicit,
            )
            miss, friendly = miss_of(evidence), None
            if miss is not None:
                row = miss.index[cut.outputs[miss.output]]
                friendly = self._alone(cut, start + row)
                evidence = evidence.knowing(Diagnosis(friendly))
            evidence, verdicts, failure = judge_explained(evidence, classes)
            ratio = max(ratio, worst_ratio(evidence))
            found.append(verdicts)
            if failure is not None:
                failed = _told(failure, cut, start, stop)
                return replace(
                    _failed(failed),
                    ratio=ratio,
                    friendly=evidence.of(Diagnosis).friendly,
                )
        return CaseReport(_together(found), ratio=ratio)

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

    def _alone(self, cut: Cut, row: int) -> str | None:
        """Return "gone" if the rows around a miss are right by themselves."""
        start = max(0, row - _AROUND)
        passes = self._passes(self.part(cut.axis, start, min(row + _AROUND, cut.rows)))
        return None if passes is None else "gone" if passes else "persists"


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


def _together(found: list[Mapping[str, Verdict]]) -> dict[str, Verdict]:
    """Return the verdicts of all slices: one that is undecided leaves the case so."""
    made: dict[str, Verdict] = {}
    for verdicts in found:
        for name, verdict in verdicts.items():
            if made.get(name) is not Verdict.UNDER_SPECIFIED:
                made[name] = verdict
    return made


def _destinations(expected: Mapping[str, Expected]) -> dict[str, Destination]:
    return {
        name: Destination(
            wanted.shape,
            str(wanted.dtype).removeprefix("torch."),
            contiguous_strides(wanted.shape),
        )
        for name, wanted in expected.items()
    }
