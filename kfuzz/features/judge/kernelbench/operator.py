"""A reference in KernelBench's form as an operator: domain, float64 oracle, values."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor, nn

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import (
    NARROW,
    accept,
    compare_all,
    expected_metadata,
    pose,
    reference_bounds,
)
from kfuzz.core.declaration import Declaration, ShapeClass
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import KernelEnded
from kfuzz.core.random_streams import Purpose, generator, is_sampled, stream
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import CaseReport, Failure, Kind, Verdict
from kfuzz.execution.calls.results import read_outputs
from kfuzz.execution.device.backends import backend_of
from kfuzz.features.judge.kernelbench.problem import (
    Form,
    Inputs,
    Sample,
    results,
    unchanged,
)
from kfuzz.features.judge.kernelbench.values import ENDS, OWN, SCALED, Shapes, Values
from kfuzz.numerics.acceptance import Acceptance, Problem
from kfuzz.numerics.compare import KIND_OF, Outcome
from kfuzz.numerics.formats import FORMATS
from kfuzz.strategies.parameters import TensorParameter


class Reference:
    """A reference as what kernels are held against.

    Attributes:
        form: the file.
        shapes: the shapes that it takes.
        outputs: names of its results.
        formats: their dtypes.
        values: makes the values of its arguments, and checks them.
        operator: it as an operator, with its float64 oracle under the shadow.
        home: the sizes at which it is asked first: the benchmarked ones, or smaller
            ones in their place where an oracle of those would not fit.
    """

    def __init__(
        self,
        form: Form,
        shapes: Shapes,
        outputs: Sequence[Tensor],
        name: str,
        inputs: Inputs | None = None,
    ) -> None:
        """Make the operator.

        Args:
            form: the file.
            shapes: the shapes that it takes.
            outputs: its results at the benchmarked shape.
            name: the operator's.
            inputs: what its arguments have in common; nothing by default.
        """
        self.form = form
        self.shapes = shapes
        self.names = tuple(s.name for s in form.samples)
        many = len(outputs) > 1
        self.outputs = tuple(f"y{i}" if many else "y" for i in range(len(outputs)))
        self.formats = tuple(str(y.dtype).removeprefix("torch.") for y in outputs)
        self._double = form.double()
        # The other model and its copy, once it was asked for, and which one is used.
        self._other: tuple[nn.Module, nn.Module] | None = None
        self._drawn_model = False
        self.values = Values(form, shapes, inputs or Inputs())
        self.home = self._home(max(y.numel() for y in outputs))
        floats = [s.dtype for s in form.samples if s.kind == "float"]
        self.dtype = floats[0]
        self.operator = Operator(
            name,
            inputs={
                s.name: TensorParameter(
                    " ".join(axes), dtype="" if s.dtype == self.dtype else s.dtype
                )
                for s, axes in zip(form.samples, shapes.axes, strict=True)
            },
            oracle=self._oracle,
            error_model=self._admitted,
            outputs=self.outputs,
            integers=tuple(
                n
                for n, f in zip(self.outputs, self.formats, strict=True)
                if DTYPES[f].kind != "float"
            ),
            shape_class=shapes.shape_class,
            dtypes=(self.dtype,),
            defaults=Declaration(dtypes=(self.dtype,)),
            within=self.values.changed,
        )

    def use_drawn(self, *, drawn: bool) -> None:
        """Compute with the model in which constant weights are drawn, or as built.

        Raises:
            UsageError: if that model cannot be built.
        """
        if drawn is self._drawn_model:
            return
        if self._other is None:
            kept = self.form.model
            self.form.model = self.form.build(nn.Module, constants_drawn=True)
            self._other = self.form.model, self.form.double()
            self.form.model = kept
        mine = self.form.model, self._double
        (self.form.model, self._double), self._other = self._other, mine
        self._drawn_model = drawn

    def __call__(self, *tensors: Tensor) -> Any:
        """Call the model itself, in its own arithmetic."""
        self.values.require(tensors)
        with torch.no_grad(), unchanged(self.form.model):
            made = results(self.form.model(*self.form.arguments(tensors)))
        return made if len(made) > 1 else made[0]

    def _oracle(self, *tensors: Tensor) -> Any:
        """The reference's own model, every weight and buffer in float64."""
        given = [
            x.to(getattr(torch, s.dtype)) if s.kind in ("int", "uint") else x
            for s, x in zip(self.form.samples, tensors, strict=True)
        ]
        return self._computed(*given)

    def _computed(self, *tensors: Tensor) -> Any:
        with unchanged(self._double):
            return results(self._double(*self.form.arguments(tensors)))

    def _admitted(self, problem: Problem) -> dict[str, Acceptance]:
        """Return what is admitted of each output, by the running-error shadow."""
        self.values.require([x[0] for x in problem.tensors.values()])
        stored = next((f for f in self.formats if DTYPES[f].kind == "float"), "float32")
        posed = replace(problem, output=FORMATS[stored])
        narrow = not NARROW.isdisjoint(s.dtype for s in self.form.samples)
        return reference_bounds(
            posed, self._oracle, self.outputs, name=self.operator.name,
            formats=[stored] * len(self.outputs),
            computed=self._computed if narrow else None,
        )  # fmt: skip

    @property
    def whole(self) -> bool:
        """Whether the benchmarked shape is the one that is asked first."""
        return self.home == dict(self.shapes.sizes)

    def fits(self, sizes: Mapping[str, int]) -> bool:
        """Whether an oracle of arguments of given sizes fits."""
        every = (math.prod(sizes[a] for a in axes) for axes in self.shapes.axes)
        return max(every) <= self._most

    @property
    def _most(self) -> int:
        return backend_of(self.form.device).limits.oracle_elements

    def _home(self, results: int) -> dict[str, int]:
        """Return the benchmarked sizes, halved until an oracle fits."""
        restriction = ShapeClass(self.shapes.shape_class)
        sizes = dict(self.shapes.sizes)
        whole = math.prod(sizes[name] for name in self.shapes.free)
        while True:
            given = (math.prod(sizes[a] for a in axes) for axes in self.shapes.axes)
            left = math.prod(sizes[name] for name in self.shapes.free)
            if max(*given, results * left // max(whole, 1), 1) <= self._most:
                return sizes
            smaller = {}
            for name in self.shapes.free:
                least, _, modulus, _ = restriction.bounds(name)
                half = sizes[name] // 2 // modulus * modulus
                if half >= max(least, 1):
                    smaller[name] = half
            if not smaller:
                return sizes
            largest = max(smaller, key=lambda name: sizes[name])
            sizes = restriction.settled({**sizes, largest: smaller[largest]}, {})

    def _shape(self, sample: Sample, *, whole: bool = False) -> tuple[int, ...]:
        """Return the shape of a tensor at the sizes asked first, or the file's own."""
        if whole:
            return sample.shape
        at = self.form.samples.index(sample)
        return tuple(self.home[axis] for axis in self.shapes.axes[at])

    def case(
        self, family: str, seed: int, *, whole: bool = False, **others: str
    ) -> Case:
        """Return the benchmarked shape with values of a family.

        Args:
            family: of the floating arguments.
            seed: of the first argument; integers have the file's own values.
            whole: whether the shape is the file's own, however large.
            others: families of single arguments instead.
        """
        tensors = {}
        for i, (sample, axes) in enumerate(
            zip(self.form.samples, self.shapes.axes, strict=True)
        ):
            own = family if self.values.is_drawn(sample) else OWN
            chosen = others.get(sample.name, own)
            # The file's own values belong together: one seed for all of them.
            apart = 0 if chosen in SCALED else i << 32
            shape = self._shape(sample, whole=whole)
            strides = sample.strides if shape == sample.shape else None
            tensors[sample.name] = TensorSpec(
                shape, axes, sample.dtype, strides, fill=Fill(chosen, seed + apart)
            )
        return Case(tensors, config=0)

    def is_benchmarked(self, case: Case) -> bool:
        """Whether a case has the benchmarked shape, or the one in its place."""
        samples = list(zip(self.form.samples, case.tensors.values(), strict=True))
        return any(
            all(self._shape(s, whole=whole) == spec.shape for s, spec in samples)
            for whole in (False, True)
        )

    def is_own(self, case: Case) -> bool:
        """Whether a case has the file's own values, scaled at most."""
        fills = [s.fill for s in case.tensors.values()]
        return all(f is not None and f.family in SCALED for f in fills)

    def resized(self, case: Case) -> Case:
        """Return a case at the benchmarked shape, in the file's own layouts."""
        tensors = {
            name: replace(
                spec, shape=self._shape(s), offset=0, plants=(),
                strides=s.strides if self._shape(s) == s.shape else None,
            )
            for s, (name, spec) in zip(
                self.form.samples, case.tensors.items(), strict=True
            )
        }  # fmt: skip
        return replace(case, tensors=tensors)

    @property
    def least_elements(self) -> int:
        """The elements of the largest tensor where every dimension is least."""
        restriction = ShapeClass(self.shapes.shape_class)
        sizes = dict(self.shapes.sizes)
        for name in self.shapes.free:
            least, _, modulus, _ = restriction.bounds(name)
            sizes[name] = max(-(-least // modulus) * modulus, modulus)
        sizes = restriction.settled(sizes, {})
        return max(math.prod(sizes[axis] for axis in axes) for axes in self.shapes.axes)

    def adapted(self, case: Case) -> Case:
        """Return a drawn case with integers, truth values and such as the file's own.

        Of every four cases one has the file's own floating values as well.
        """
        tensors, own = {}, is_sampled(case.seed, Purpose.OWN_VALUES, 1 / 4)
        for sample, (name, spec) in zip(
            self.form.samples, case.tensors.items(), strict=True
        ):
            assert spec.fill is not None
            family, seed = spec.fill.family, spec.fill.seed
            if not self.values.is_drawn(sample):
                turn = stream(seed, Purpose.INTEGER_ENDS) % 8
                ends = sample.kind in ("int", "uint") and turn < len(ENDS)
                ends = ends and not self.values.inputs.is_fixed(name)
                family = ENDS[turn] if ends else OWN
            elif own:
                family = OWN
            else:
                tensors[name] = spec
                continue
            tensors[name] = replace(
                spec, fill=Fill(family, case.seed if own else seed), plants=()
            )
        return replace(case, tensors=tensors, config=0)


# A shape too large for an oracle: the kernel runs on all of it, rows are judged.
#
# Only where the reference shows that its rows do not depend on one another. Which rows
# are judged, a kernel cannot know.

# Stretches of rows that are judged, and elements of one.
_STRETCHES: Final = 6
_ELEMENTS: Final = 1 << 22


class RowsJudge:
    """Judges one call of a kernel by stretches of rows."""

    def __init__(self, kernel: BoundKernel, reference: Reference, case: Case) -> None:
        self._kernel = kernel
        self._reference = reference
        self._case = case
        first = next(iter(case.tensors.values()))
        self._row = first.axes[0] if first.axes else ""

    def report(self, values: Mapping[str, Tensor]) -> CaseReport:
        """Call the kernel on all, and judge rows.

        Raises:
            KernelEnded: its process ended instead.
        """
        if not self._separable(values):
            return CaseReport({}, unsupported="rows of its result depend on others")
        try:
            with torch.no_grad():
                made = results(self._kernel.on(*values.values()))
        except KernelEnded:
            raise
        except Exception as error:
            text = str(error).strip().partition("\n")[0]
            failure = Failure(
                "K-LIV-01", Kind.RAISES, f"raises {text}", detail=type(error).__name__
            )
            return _violates(failure)
        for low, high in self._stretches():
            found = self._judged(values, made, low, high)
            if found is not None:
                return _violates(found)
        return CaseReport({"K-VAL-01": Verdict.CONFORMS, "K-LIV-01": Verdict.CONFORMS})

    def _stretches(self) -> list[tuple[int, int]]:
        """Return the first and the last rows, and some in between."""
        rows = self._case.dims[self._row]
        count = max(1, min(rows, _ELEMENTS * rows // self._case.elements))
        chance = generator(self._case.seed, Purpose.ROWS)
        starts = [0, rows - count]
        starts += [chance.randrange(rows - count + 1) for _ in range(_STRETCHES - 2)]
        return [(start, start + count) for start in dict.fromkeys(starts)]

    def _part(
        self, values: Mapping[str, Tensor], low: int, high: int
    ) -> tuple[Case, dict[str, Tensor]]:
        """Return the case of some rows alone."""
        tensors, parts = {}, {}
        for name, spec in self._case.tensors.items():
            shape, x = spec.shape, values[name]
            if self._row in spec.axes:
                axis = spec.axes.index(self._row)
                x = x.narrow(axis, low, high - low)
                shape = (*shape[:axis], high - low, *shape[axis + 1 :])
            tensors[name] = replace(spec, shape=shape, strides=None)
            parts[name] = x.contiguous()
        return replace(self._case, tensors=tensors), parts

    def _judged(
        self,
        values: Mapping[str, Tensor],
        made: tuple[object, ...],
        low: int,
        high: int,
    ) -> Failure | None:
        """Return what is wrong with some rows."""
        operator = self._kernel.operator
        case, parts = self._part(values, low, high)
        problem = pose(operator, case, parts, self._kernel.declaration)
        accepted = accept(operator, problem)
        cut = tuple(
            y.narrow(0, low, high - low)
            if isinstance(y, Tensor) and y.dim() and y.shape[0] >= high
            else y
            for y in made
        )
        outputs, _, wrong = read_outputs(
            cut if len(cut) > 1 else cut[0],
            expected_metadata(accepted),
            self._reference.form.device,
            copy=False,
        )
        if wrong is not None:
            return Failure("K-MET-01", wrong.kind, wrong.message, output=wrong.output)
        for name, compared in compare_all(outputs, accepted).items():
            if not bool(compared.missed.any()):
                continue
            at = int(compared.outcomes.flatten().argmax())
            severest = Outcome(int(compared.outcomes.flatten()[at]))
            got = float(outputs[name].reshape(-1)[at])
            wanted = float(accepted[name].reference.reshape(-1)[at])
            return Failure(
                "K-VAL-01", KIND_OF[severest],
                f"{name} = {got:.9g}, expected {wanted:.9g} in rows {low} to "
                f"{high - 1} of {self._case.dims[self._row]}, at the benchmarked shape",
                output=name,
            )  # fmt: skip
        return None

    def _separable(self, values: Mapping[str, Tensor]) -> bool:
        """Whether the reference gives rows alone what it gives them among others."""
        if (
            self._row not in self._reference.shapes.free
            or self._case.dims[self._row] < 4
        ):
            return False
        operator, claims = self._kernel.operator, self._kernel.declaration
        _, many = self._part(values, 0, 3)
        case, one = self._part(values, 1, 2)
        try:
            whole = results(self._reference(*many.values()))
            accepted = accept(operator, pose(operator, case, one, claims))
        except Exception:
            return False
        if any(not y.dim() or y.shape[0] != 3 for y in whole):
            return False
        cut = {n: y[1:2] for n, y in zip(operator.outputs, whole, strict=True)}
        if expected_metadata(accepted).keys() != cut.keys():
            return False
        compared = compare_all(cut, accepted).values()
        return not any(bool(c.missed.any()) for c in compared)


def _violates(failure: Failure) -> CaseReport:
    return CaseReport({failure.contract: Verdict.VIOLATES}, failure=failure)
