"""A reference in KernelBench's form as an operator: domain, float64 oracle, values."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts.operator import Operator
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import KfuzzError
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.shape_class import ShapeClass
from kfuzz.execution.fills import logical_values
from kfuzz.execution.patterns import INTEGERS, as_signed
from kfuzz.numerics.acceptance import Acceptance, Problem
from kfuzz.numerics.formats import FORMATS
from kfuzz.numerics.shadow import shadowed
from kfuzz.strategies.parameters import TensorParameter
from kfuzz.targets.kernelbench import Form, Sample, results, unchanged
from kfuzz.targets.kernelbench_shapes import Shapes, on_cpu, runs, small_sizes

OWN: Final = "form"
"""The family of values that the file's own `get_inputs` gives."""

SCALED: Final = {
    OWN: 1.0,
    "form_times_3": 3.0,
    "form_times_0.01": 0.01,
    "form_negated": -1.0,
    "form_times_2^-24": 2.0**-24,
}
"""Families of the file's own values, floating ones times a number; the last is for
kernels that skip what they take for zero."""

ENDS: Final = ("form_least", "form_greatest")
"""Families in which every integer is the least, or the greatest, of the file's own."""

# Elements of the largest tensor of which an oracle and its bound are made at once.
_MOST: Final = {"cuda": 1 << 26, "cpu": 1 << 22}
# Seeds under which integers are looked at for their range.
_RANGE: Final = range(6)
# Elements of the file's own from which those of other shapes are taken.
_POOL: Final = 1 << 20


class OutOfRange(ValueError):
    """An integer that the reference's own arguments do not reach."""


@dataclass(frozen=True)
class Bound:
    """What the integers of one argument stay within.

    Attributes:
        least: the least value.
        greatest: the greatest value.
        below: the dimension that they index, "" for none.
    """

    least: int
    greatest: int
    below: str = ""

    def over(self, x: Tensor) -> "Bound":
        """Return the bound with the elements of an argument inside; 0 always is."""
        if not x.numel():
            return self
        least, greatest = min(self.least, int(x.min()), 0), int(x.max())
        return replace(self, least=least, greatest=max(self.greatest, greatest))

    def require(self, x: Tensor, sizes: Mapping[str, int]) -> None:
        """Check integers.

        Raises:
            OutOfRange: if one lies outside.
        """
        if not x.numel():
            return
        most = min(self.greatest, sizes.get(self.below, self.greatest + 1) - 1)
        if int(x.min()) < self.least or int(x.max()) > most:
            raise OutOfRange(f"an integer outside {self.least} to {most}")


class Reference:
    """A reference as what kernels are held against.

    Attributes:
        form: the file.
        shapes: the shapes that it takes.
        bounds: what integer arguments stay within, by name.
        outputs: names of its results.
        formats: their dtypes.
        operator: it as an operator, with its float64 oracle under the shadow.
        home: the sizes at which it is asked first: the benchmarked ones, or smaller
            ones in their place where an oracle of those would not fit.
    """

    def __init__(
        self, form: Form, shapes: Shapes, outputs: Sequence[Tensor], name: str
    ) -> None:
        """Make the operator.

        Args:
            form: the file.
            shapes: the shapes that it takes.
            outputs: its results at the benchmarked shape.
            name: the operator's.
        """
        self.form = form
        self.shapes = shapes
        self.names = tuple(s.name for s in form.samples)
        many = len(outputs) > 1
        self.outputs = tuple(f"y{i}" if many else "y" for i in range(len(outputs)))
        self.formats = tuple(str(y.dtype).removeprefix("torch.") for y in outputs)
        self._double = form.double()
        self._kept: dict[tuple[str, int], Tensor] = {}
        self.bounds = {
            s.name: Bound(s.least, s.greatest, self._indexed(s))
            for s in form.samples
            if s.kind in ("int", "uint")
        }
        for seed in _RANGE if self.bounds else ():
            self._extend(form.tensors(seed))
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
            error=self._admitted,
            outputs=self.outputs,
            integers=tuple(
                n
                for n, f in zip(self.outputs, self.formats, strict=True)
                if DTYPES[f].kind != "float"
            ),
            shape_class=shapes.shape_class,
            dtypes=(self.dtype,),
            defaults=Declaration(dtypes=(self.dtype,)),
        )

    def __call__(self, *tensors: Tensor) -> Any:
        """Call the model itself, in its own arithmetic."""
        self.require(tensors)
        with torch.no_grad(), unchanged(self.form.model):
            return self.form.model(*self.form.arguments(tensors))

    def require(self, tensors: Sequence[Tensor]) -> None:
        """Check that integers are such as the file's own arguments have.

        Raises:
            OutOfRange: if one is not.
        """
        sizes = {
            axis: n
            for axes, x in zip(self.shapes.axes, tensors, strict=True)
            for axis, n in zip(axes, x.shape, strict=True)
        }
        for name, x in zip(self.names, tensors, strict=True):
            if name in self.bounds:
                self.bounds[name].require(x, sizes)

    def _oracle(self, *tensors: Tensor) -> Any:
        """The reference's own model, every weight and buffer in float64."""
        given = [
            x.to(getattr(torch, s.dtype)) if s.kind in ("int", "uint") else x
            for s, x in zip(self.form.samples, tensors, strict=True)
        ]
        with unchanged(self._double):
            return results(self._double(*self.form.arguments(given)))

    def _admitted(self, problem: Problem) -> dict[str, Acceptance]:
        """Return what is admitted of each output, by the running-error shadow."""
        self.require([x[0] for x in problem.tensors.values()])
        stored = next((f for f in self.formats if DTYPES[f].kind == "float"), "float32")
        posed = replace(problem, output=FORMATS[stored])
        found = shadowed(self._oracle, posed, name=self.operator.name)
        floats = (x for x in problem.tensors.values() if x.is_floating_point())
        if all(bool(torch.isfinite(x).all()) for x in floats):
            # NaN of numbers: the reference is not defined there, 0 log 0 for one.
            found = tuple(
                replace(a, undecidable=a.undecidable | a.reference.isnan())
                for a in found
            )
        return dict(zip(self.outputs, found, strict=True))

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
        return _MOST["cuda" if self.form.device.type == "cuda" else "cpu"]

    def _home(self, results: int) -> dict[str, int]:
        """Return the benchmarked sizes, halved until an oracle fits.

        Args:
            results: elements of the largest result.
        """
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
            own = family if sample.kind == "float" else OWN
            chosen = others.get(sample.name, own)
            # The file's own values belong together: one seed for all of them.
            apart = 0 if chosen in SCALED else i << 32
            shape = self._shape(sample, whole=whole)
            strides = sample.strides if shape == sample.shape else None
            tensors[sample.name] = TensorSpec(
                shape, axes, sample.dtype, strides, fill=Fill(chosen, seed + apart)
            )
        return Case(tensors)

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
        """Return a drawn case with integers, and truth values, such as the file's own.

        Of every four cases one has the file's own floating values as well.
        """
        tensors, own = {}, case.seed >> 3 & 3 == 0
        for sample, (name, spec) in zip(
            self.form.samples, case.tensors.items(), strict=True
        ):
            assert spec.fill is not None
            family, seed = spec.fill.family, spec.fill.seed
            if sample.kind != "float":
                turn = seed >> 5 & 7
                ends = sample.kind != "bool" and turn < len(ENDS)
                family = ENDS[turn] if ends else OWN
            elif own:
                family = OWN
            else:
                tensors[name] = spec
                continue
            tensors[name] = replace(
                spec, fill=Fill(family, case.seed if own else seed), plants=()
            )
        return replace(case, tensors=tensors)

    def values(self, case: Case, name: str) -> Tensor:
        """Return the elements of one argument, as `logical_values` does.

        Raises:
            KfuzzError: where the recipe is impossible.
        """
        spec = case.tensors[name]
        fill = spec.fill
        if fill is None or not fill.family.startswith(OWN):
            made = logical_values(case, name, self.form.device)
            if fill is None and name in self.bounds:  # it was judged before
                self.bounds[name] = self.bounds[name].over(made)
            return made
        if fill.family not in (*SCALED, *ENDS):
            raise KfuzzError(f"unknown family {fill.family!r}", where=name)
        sample = next(s for s in self.form.samples if s.name == name)
        made = self._own(sample, spec, fill)
        raw = made.view(INTEGERS[made.element_size()])
        for plant in spec.plants:
            raw[plant.at] = as_signed(plant.bits, made.element_size())
        return made

    def _own(self, sample: Sample, spec: TensorSpec, fill: Fill) -> Tensor:
        """Return elements as the file makes them, at any shape: fresh, contiguous."""
        if fill.family in ENDS:
            dtype = getattr(torch, spec.dtype)
            end = sample.least if fill.family == ENDS[0] else sample.greatest
            made = torch.full(spec.shape, end, dtype=dtype, device=self.form.device)
        elif spec.shape == sample.shape:
            made = self._given(sample.name, fill.seed).clone(
                memory_format=torch.contiguous_format
            )
        else:
            made = self._drawn(sample, spec, fill.seed)
        factor = SCALED.get(fill.family, 1.0)
        if factor != 1.0 and made.is_floating_point():
            made = made * factor
        return made

    def _extend(self, tensors: Mapping[str, Tensor]) -> None:
        """Let integers reach as far as those of the file's own arguments do."""
        for name, bound in self.bounds.items():
            self.bounds[name] = bound.over(tensors[name])

    def _given(self, name: str, seed: int) -> Tensor:
        """Return an argument as the file makes it under a seed; the last are kept."""
        if (name, seed) not in self._kept:
            found = self.form.tensors(seed % (1 << 63))
            self._extend(found)
            self._kept = {(n, seed): x for n, x in found.items()}
        return self._kept[name, seed]

    def _drawn(self, sample: Sample, spec: TensorSpec, seed: int) -> Tensor:
        """Return elements of another shape, drawn from those of the file."""
        pool = self._pool(sample)
        chance = torch.Generator().manual_seed(seed % (1 << 63))
        if not len(pool):
            return torch.zeros(spec.shape, dtype=pool.dtype, device=pool.device)
        at = torch.randint(len(pool), (spec.numel,), generator=chance)
        made = pool[at.to(pool.device)].reshape(spec.shape)
        return made

    def _pool(self, sample: Sample) -> Tensor:
        if not hasattr(self, "_pools"):
            tensors = self.form.tensors(1)
            self._extend(tensors)
            self._pools = {n: x.reshape(-1)[:_POOL].clone() for n, x in tensors.items()}
        return self._pools[sample.name]

    def bounded(self, case: Case, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the arguments of a case, indices below what they index."""
        made = dict(values)
        for name, bound in self.bounds.items():
            size = case.dims.get(bound.below, 0)
            if size and case.tensors[name].fill is not None:
                made[name] = made[name] % size
        return made

    def _indexed(self, sample: Sample) -> str:
        """Return the dimension that an argument's integers index, "" for none.

        Tried on the CPU: an index that is out of bounds ends a GPU's context.
        """
        model = on_cpu(self.form)
        # At two sizes: one alone may be that of a table by chance.
        tried = [small_sizes(self.shapes, scale) for scale in (1, 4)]

        def takes(sizes: Mapping[str, int], value: int) -> bool:
            return runs(self.form, model, self.shapes, sizes, {sample.name: value})

        for name in self.shapes.free:
            if self.shapes.sizes[name] <= sample.greatest:
                continue
            if all(
                sizes is not None
                and takes(sizes, sizes[name] - 1)
                and not takes(sizes, sizes[name])
                for sizes in tried
            ):
                return name
        return ""
