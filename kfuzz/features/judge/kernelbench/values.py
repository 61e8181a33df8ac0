"""At which other shapes a reference runs: sizes are changed and it is asked.

Dimensions of one size are one dimension only where the reference needs it so: a square
product has three that are equal by chance. Nothing is computed: it is asked on tensors
without elements.
"""

import copy
import math
import string
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

import torch
from torch import Tensor, nn

from kfuzz.core.declaration import ShapeClass
from kfuzz.core.errors import KfuzzError
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.execution.values.fills import logical_values
from kfuzz.execution.values.formula import INTEGERS, as_signed
from kfuzz.features.judge.kernelbench.problem import (
    Form,
    Inputs,
    Sample,
    Slot,
    converted,
    interval_of,
)
from kfuzz.features.judge.kernelbench.structures import are_compatible

# A dimension that a reference divides is a multiple of one of these.
_MULTIPLES: Final = (2, 3, 4, 5, 6, 8, 10, 12, 16, 32, 64, 128, 256)
# What a filter, a window or a reflected border needs at least.
_LEAST: Final = (*range(1, 17), 24, 32, 48, 64, 128)
# Seconds of processor time: each question runs the model's Python once, and a deep one
# takes a while.
_SECONDS: Final = 8.0
# Sizes at which a reference is tried on the CPU: all different, none of them 1.
_SMALL: Final = (5, 7, 11, 13, 17, 19, 23, 29)
# Names that shape classes give a meaning of their own are left out.
_NAMES: Final = tuple(c for c in string.ascii_uppercase if c not in "MN")


@dataclass(frozen=True)
class Shapes:
    """The shapes that a reference takes.

    Attributes:
        axes: a name for each dimension of each tensor.
        sizes: the benchmarked size of each name.
        rules: what the sizes have to satisfy, in the language of shape classes.
        free: the names that may vary.
        unknown: why no other shape could be asked for, "" where they were.
    """

    axes: tuple[tuple[str, ...], ...]
    sizes: Mapping[str, int]
    rules: tuple[str, ...]
    free: tuple[str, ...] = ()
    unknown: str = ""

    @property
    def shape_class(self) -> str:
        """All rules as one."""
        return " and ".join(self.rules)

    def largest(self, sizes: Mapping[str, int]) -> int:
        """Return the elements of the largest tensor at given sizes."""
        return max(math.prod(sizes[axis] for axis in axes) for axes in self.axes)

    def at_least(self, wanted: Mapping[str, int]) -> dict[str, int]:
        """Return the least sizes that the rules allow, none below what is wanted."""
        restriction, sizes = ShapeClass(self.shape_class), dict(self.sizes)
        for name in self.free:
            least, _, modulus, _ = restriction.bounds(name)
            sizes[name] = -(-max(wanted.get(name, 1), least) // modulus) * modulus
        return restriction.settled(sizes, {})


def shapes_of(form: Form, inputs: Inputs | None = None) -> Shapes:
    """Return at which shapes a reference runs, as far as asking it tells.

    Args:
        form: the reference.
        inputs: which dimensions its arguments tie or fix; none by default.
    """
    asked = _Asked(form, inputs or Inputs())
    slots = [(i, a) for i, s in enumerate(form.samples) for a in range(len(s.shape))]
    if asked.unable:
        return _named(form.samples, [], slots, asked.unable)
    groups: list[_Group] = []
    known: set[Slot] = set()
    for slot in slots:
        if slot in known:
            continue
        group = _group_of(slot, slots, asked)
        if group is None:
            continue
        # Groups that share a dimension are one.
        for other in [g for g in groups if g.slots & group.slots]:
            groups.remove(other)
            group = _Group(group.slots | other.slots, max(group.step, other.step))
        groups.append(group)
        known |= group.slots
    kept = [g for g in groups if asked.extended(g.slots, g.step)]
    for group in kept:
        group.least = _least(group, asked)
    made = _named(form.samples, kept, slots, asked.late)
    fixed = _refused(form, made)
    if not fixed:
        return made
    wrong = {slots[i] for i, name in enumerate(chain(*made.axes)) if name in fixed}
    kept = [group for group in kept if not group.slots & wrong]
    return _named(form.samples, kept, slots, asked.late)


@dataclass
class _Group:
    """Dimensions that vary together."""

    slots: frozenset[Slot]
    step: int = 1
    least: int = 1


@dataclass
class _Asked:
    """Asks a reference whether it takes tensors of given sizes.

    Attributes:
        form: the reference.
        inputs: which dimensions its arguments tie or fix.
        unable: why it cannot be asked, "" where it can.
        late: what to say once time was up, "" before.
    """

    form: Form
    inputs: Inputs
    unable: str = ""
    late: str = ""
    _model: nn.Module | None = None
    _known: dict[tuple[tuple[Slot, int], ...], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Copy the model without its elements, and ask for the benchmarked shape."""
        self._until = time.thread_time() + _SECONDS
        try:
            empty = copy.deepcopy(self.form.model).to("meta")
            self._model = converted(empty, lambda x: x.to("meta"))
        except Exception as error:
            self.unable = f"the model has no copy without elements: {error}"
            return
        if not self.takes({}):
            self.unable = "the reference does not run on tensors without elements"

    def size(self, slot: Slot) -> int:
        """Return the benchmarked size of a dimension."""
        return self.form.samples[slot[0]].shape[slot[1]]

    def extended(self, slots: frozenset[Slot], by: int) -> bool:
        """Whether dimensions may be larger by some, all together."""
        return self.takes({slot: self.size(slot) + by for slot in slots})

    def _keeps(self, sizes: Mapping[Slot, int]) -> bool:
        """Whether dimensions have such sizes as the arguments' structures allow."""
        if any(sizes.get(s, self.size(s)) != self.size(s) for s in self.inputs.fixed):
            return False
        return all(
            len({sizes.get(slot, self.size(slot)) for slot in tied}) == 1
            for tied in self.inputs.ties
        )

    def takes(self, sizes: Mapping[Slot, int]) -> bool:
        """Whether the reference runs where some dimensions have other sizes."""
        key = tuple(sorted(sizes.items()))
        if key in self._known:
            return self._known[key]
        if not self._keeps(sizes):
            return False
        if time.thread_time() > self._until:
            self.late = "not every dimension was tried, for want of time"
            return False
        tensors = []
        for i, sample in enumerate(self.form.samples):
            shape = [sizes.get((i, a), n) for a, n in enumerate(sample.shape)]
            dtype = getattr(torch, sample.dtype)
            tensors.append(torch.empty(shape, dtype=dtype, device="meta"))
        assert self._model is not None
        try:
            with torch.device("meta"):
                made = self.form.call(self._model, tensors)
            taken = all(isinstance(x, torch.Tensor) for x in made)
        except Exception:
            taken = False
        self._known[key] = taken
        return taken


def small_sizes(shapes: Shapes, scale: int = 1) -> dict[str, int] | None:
    """Return small sizes, different where they may be; None if none are found."""
    small = enumerate(shapes.free)
    sizes = shapes.at_least({n: _SMALL[i % len(_SMALL)] * scale for i, n in small})
    return sizes if ShapeClass(shapes.shape_class).accepts(sizes) else None


def runs(
    form: Form,
    model: nn.Module,
    shapes: Shapes,
    sizes: Mapping[str, int],
    integers: Mapping[str, int],
) -> bool:
    """Whether a reference runs on the CPU on tensors of one number each.

    Args:
        form: the reference.
        model: its model on the CPU.
        shapes: names of the dimensions.
        sizes: their sizes.
        integers: what tensors of integers hold, by their names; 0 for others.
    """
    tensors = []
    for sample, axes in zip(form.samples, shapes.axes, strict=True):
        shape = [sizes[axis] for axis in axes]
        fill = 1 if sample.kind == "float" else integers.get(sample.name, 0)
        tensors.append(torch.full(shape, fill, dtype=getattr(torch, sample.dtype)))
    try:
        form.call(model, tensors)
    except Exception:
        return False
    return True


def on_cpu(form: Form) -> nn.Module:
    """Return a copy of a reference's model on the CPU."""
    return converted(copy.deepcopy(form.model).to("cpu"), lambda x: x.cpu())


def _refused(form: Form, shapes: Shapes) -> set[str]:
    """Return the dimension that does not vary on tensors with elements, if one is.

    Without elements some operators look at fewer sizes.
    """
    small = small_sizes(shapes)
    if small is None:
        return set()
    restriction, model = ShapeClass(shapes.shape_class), on_cpu(form)
    if runs(form, model, shapes, small, {}):
        return set()
    for name in shapes.free:
        sizes = restriction.settled({**small, name: shapes.sizes[name]}, {})
        if runs(form, model, shapes, sizes, {}):
            return {name}
    return set()


def _group_of(slot: Slot, slots: Sequence[Slot], asked: _Asked) -> _Group | None:
    """Return the dimensions that vary with one, None if it does not vary."""
    size = asked.size(slot)
    may_vary = [s for s in slots if s not in asked.inputs.fixed]
    alike = frozenset(s for s in may_vary if asked.size(s) == size) | {slot}
    for step in (1, *(m for m in _MULTIPLES if size % m == 0)):
        if asked.extended(frozenset({slot}), step):
            return _Group(frozenset({slot}), step)
        # One of its size that never varies spoils them all: pairs come first.
        tied = [frozenset({slot, s}) for s in sorted(alike - {slot})] + [alike]
        for slots_of in tied if len(alike) > 1 else ():
            if not asked.extended(slots_of, step):
                continue
            for other in sorted(slots_of - {slot}):  # none that can be left out
                if asked.extended(slots_of - {other}, step):
                    slots_of -= {other}
            return _Group(slots_of, step)
    return None


def _least(group: _Group, asked: _Asked) -> int:
    """Return the least size that the dimensions of a group may have."""
    size: int = asked.size(next(iter(group.slots)))
    for wanted in _LEAST:
        if wanted >= size or wanted % group.step:
            continue
        if asked.takes(dict.fromkeys(group.slots, wanted)):
            return int(wanted)
    return size


def _named(
    samples: Sequence[Sample], groups: Sequence[_Group], slots: Sequence[Slot], why: str
) -> Shapes:
    """Give the dimensions names, and say in words what holds of their sizes.

    A name stands once in a tensor; what varies with it there has another, equal to it.
    """
    names: dict[Slot, str] = {}
    sizes: dict[str, int] = {}
    rules, free = [], []
    group_of = {slot: g for g in groups for slot in g.slots}
    leads: dict[int, list[tuple[str, set[int]]]] = {}
    for slot in slots:
        size = samples[slot[0]].shape[slot[1]]
        group = group_of.get(slot)
        own = leads.setdefault(id(group), []) if group else []
        same = next((name for name, tensors in own if slot[0] not in tensors), None)
        if same is not None:
            names[slot] = same
            next(tensors for name, tensors in own if name == same).add(slot[0])
            continue
        name = _name(len(sizes))
        names[slot], sizes[name] = name, size
        if group is None:
            rules.append(f"{name} == {size}")
        elif own:
            rules.append(f"{name} == {own[0][0]}")
        else:
            free.append(name)
            rules.append(f"{name} >= {group.least}")
            if group.step > 1:
                rules.append(f"{name} % {group.step} == 0")
        own.append((name, {slot[0]}))
    axes = tuple(
        tuple(names[i, a] for a in range(len(s.shape))) for i, s in enumerate(samples)
    )
    return Shapes(axes, sizes, tuple(rules), tuple(free), why)


def _name(number: int) -> str:
    """Return the name of a dimension: A, B and so on, then A1, B1."""
    turn, place = divmod(number, len(_NAMES))
    return _NAMES[place] + (str(turn) if turn else "")


# Values of a reference's arguments: the file's own, and such as it could give.

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
        if not asked or self._shapes.largest(sizes) > _ASKED:
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
                return self._form.call(model, list(given.values()))
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
