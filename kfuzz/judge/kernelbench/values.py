"""Values of a reference's arguments: the file's own, and such as it could give."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.core.errors import KfuzzError
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.execution.values.fills import logical_values
from kfuzz.execution.values.generator import INTEGERS, as_signed
from kfuzz.judge.kernelbench.inputs import Inputs, interval_of
from kfuzz.judge.kernelbench.problem import Form, Sample, results, unchanged
from kfuzz.judge.kernelbench.shapes import Shapes, on_cpu, runs, small_sizes
from kfuzz.judge.kernelbench.structure_search import are_compatible

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

SHIFTED: Final = "form_plus_offset"
"""The family of the file's own values plus a number that is large beside them: what is
accurate takes the mean out before it squares."""

ENDS: Final = ("form_least", "form_greatest")
"""Families in which every integer is the least, or the greatest, of the file's own."""

# Seeds under which integers are looked at for their range.
_RANGE: Final = range(6)
# Elements of arguments on which a reference is asked for the range of its numbers.
_ASKED: Final = 1 << 20
# Seed of values of the file's own that differ from those of any case.
_OTHER: Final = (1 << 40) + 1
# Elements of the file's own from which those of other shapes are taken.
_POOL: Final = 1 << 20


class OutOfRange(ValueError):
    """Values that the reference's own arguments never have."""


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


class Values:
    """Makes the values of arguments, and checks them.

    Attributes:
        inputs: what the file's own arguments have in common.
        bounds: what integer arguments stay within, by name.
    """

    def __init__(self, form: Form, shapes: Shapes, inputs: Inputs) -> None:
        """Look at the arguments of several calls."""
        self._form = form
        self._shapes = shapes
        self.inputs = inputs
        self._kept: dict[tuple[str, int], Tensor] = {}
        self._pools: dict[str, Tensor] = {}
        self._handed_out: set[tuple[object, ...]] = set()
        self.bounds = {
            s.name: Bound(s.least, s.greatest, self._indexed(s))
            for s in form.samples
            if s.kind in ("int", "uint")
        }
        for seed in _RANGE if self.bounds else ():
            self._extend(form.tensors(seed))
        self.inputs = self._with_intervals()

    def require(self, tensors: Sequence[Tensor]) -> None:
        """Check that values are such as the file's own arguments have.

        Raises:
            OutOfRange: if some are not.
        """
        names = [s.name for s in self._form.samples]
        named = dict(zip(names, tensors, strict=True))
        if lacking := self.inputs.outside(named):
            raise OutOfRange(lacking)
        for name, x in named.items():
            if self.inputs.is_fixed(name) and _fingerprint(x) not in self._handed_out:
                raise OutOfRange(f"{name} is not what get_inputs gives")
        sizes = {
            axis: n
            for axes, x in zip(self._shapes.axes, tensors, strict=True)
            for axis, n in zip(axes, x.shape, strict=True)
        }
        for name, x in named.items():
            if name in self.bounds:
                self.bounds[name].require(x, sizes)

    def of(self, case: Case) -> dict[str, Tensor]:
        """Return the arguments of a case, such as the file's own are.

        Indices stay below what they index, and values keep to what all draws have in
        common. Explicit values stay as they are.

        Raises:
            KfuzzError: where the recipe is impossible.
        """
        made = {name: self._elements(case, name) for name in case.tensors}
        for name, bound in self.bounds.items():
            size = case.dims.get(bound.below, 0)
            if size and case.tensors[name].fill is not None:
                made[name] = made[name] % size
        if all(spec.fill is None for spec in case.tensors.values()):
            return made
        return self.inputs.fitted(made)

    def _elements(self, case: Case, name: str) -> Tensor:
        """Return the elements of one argument, as `logical_values` does."""
        spec = case.tensors[name]
        fill = spec.fill
        if fill is None or not fill.family.startswith(OWN):
            made = logical_values(case, name, self._form.device)
            if fill is None:  # it was judged before
                self._hand_out(name, made)
                if name in self.bounds:
                    self.bounds[name] = self.bounds[name].over(made)
            return made
        if fill.family not in (*SCALED, *ENDS, SHIFTED):
            raise KfuzzError(f"unknown family {fill.family!r}", where=name)
        sample = next(s for s in self._form.samples if s.name == name)
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
            made = torch.full(spec.shape, end, dtype=dtype, device=self._form.device)
        elif spec.shape == sample.shape:
            made = self._given(sample.name, fill.seed).clone(
                memory_format=torch.contiguous_format
            )
            self._hand_out(sample.name, made)
        else:
            made = self._drawn(sample, spec, fill.seed)
        factor = SCALED.get(fill.family, 1.0)
        if factor != 1.0 and made.is_floating_point():
            made = made * factor
        if fill.family == SHIFTED and made.numel():
            # Some bits more than half of the format's precision are the offset's.
            finfo = torch.finfo(made.dtype)
            offset = 2.0 ** ((2 - round(math.log2(finfo.eps))) // 2 - 2)
            made = made + offset * made.abs().max().clamp_max(1.0)
        return made

    def _extend(self, tensors: Mapping[str, Tensor]) -> None:
        """Let integers reach as far as those of the file's own arguments do."""
        for name, bound in self.bounds.items():
            self.bounds[name] = bound.over(tensors[name])

    def _given(self, name: str, seed: int) -> Tensor:
        """Return an argument as the file makes it under a seed; the last are kept."""
        if (name, seed) not in self._kept:
            found = self._form.tensors(seed % (1 << 63))
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
        if not self._pools:
            tensors = self._form.tensors(1)
            self._extend(tensors)
            self._pools = {n: x.reshape(-1)[:_POOL].clone() for n, x in tensors.items()}
        return self._pools[sample.name]

    def changed(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return changed values as other values that the file could have given."""
        made = dict(values)
        for sample in self._form.samples:
            if self.inputs.is_fixed(sample.name):
                other = self._given(sample.name, _OTHER)
                made[sample.name] = other.clone(memory_format=torch.contiguous_format)
                self._hand_out(sample.name, other)
        return self.inputs.fitted(made)

    def _hand_out(self, name: str, x: Tensor) -> None:
        if self.inputs.is_fixed(name):
            self._handed_out.add(_fingerprint(x))

    def is_drawn(self, sample: Sample) -> bool:
        """Whether values are drawn for an argument, besides the file's own."""
        return sample.kind == "float" and not self.inputs.is_discrete(sample.name)

    def _with_intervals(self) -> Inputs:
        """Return what is known of the arguments, with the intervals that it needs."""
        asked = [
            s
            for s in self._form.samples
            if self.is_drawn(s) and not any(k.bounded for k in self.inputs.of(s.name))
        ]
        sizes = small_sizes(self._shapes) or dict(self._shapes.sizes)
        every = [math.prod(sizes[a] for a in axes) for axes in self._shapes.axes]
        if not asked or max(every) > _ASKED:
            return self.inputs
        case = Case(
            {
                s.name: TensorSpec(
                    tuple(sizes[a] for a in axes), axes, s.dtype, fill=Fill(OWN, 1)
                )
                for s, axes in zip(self._form.samples, self._shapes.axes, strict=True)
            }
        )
        values = {n: x.cpu() for n, x in self.of(case).items()}
        model = on_cpu(self._form)

        def runs(given: Mapping[str, Tensor]) -> tuple[Any, ...] | None:
            try:
                with torch.no_grad(), unchanged(model):
                    return results(model(*self._form.arguments(list(given.values()))))
            except Exception:
                return None

        found = dict(self.inputs.structures)
        for sample in asked:
            own = self._given(sample.name, 1)
            seen = float(own.min()), float(own.max())
            known = self.inputs.of(sample.name)
            needed = interval_of(sample.name, values, seen, runs, known)
            # First: numbers that are put into an interval lose their order.
            if needed is not None and are_compatible((needed, *known), own):
                found[sample.name] = (needed, *known)
        return replace(self.inputs, structures=found)

    def _indexed(self, sample: Sample) -> str:
        """Return the dimension that an argument's integers index, "" for none.

        Tried on the CPU: an index that is out of bounds ends a GPU's context.
        """
        model = on_cpu(self._form)
        # At two sizes: one alone may be that of a table by chance.
        tried = [small_sizes(self._shapes, scale) for scale in (1, 4)]

        def takes(sizes: Mapping[str, int], value: int) -> bool:
            return runs(self._form, model, self._shapes, sizes, {sample.name: value})

        for name in self._shapes.free:
            if self._shapes.sizes[name] <= sample.greatest:
                continue
            if all(
                sizes is not None
                and takes(sizes, sizes[name] - 1)
                and not takes(sizes, sizes[name])
                for sizes in tried
            ):
                return name
        return ""


def _fingerprint(x: Tensor) -> tuple[object, ...]:
    """Return what tells values apart, alike for float64 copies of them."""
    wide = x.to(torch.float64).contiguous().view(torch.int64)
    place = torch.arange(wide.numel(), device=x.device)
    mixed = (wide.reshape(-1) >> 13) * (2 * place + 1)
    return (tuple(x.shape), int(mixed.sum()))
