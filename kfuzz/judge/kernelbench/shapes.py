"""At which other shapes a reference runs: sizes are changed and it is asked.

Dimensions of one size are one dimension only where the reference needs it so: a square
product has three that are equal by chance. Nothing is computed: it is asked on tensors
without elements.
"""

import copy
import string
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import torch
from torch import nn

from kfuzz.core.shape_class import ShapeClass
from kfuzz.judge.kernelbench.inputs import Inputs, Slot
from kfuzz.judge.kernelbench.problem import Form, Sample, converted, results, unchanged

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
    kept = [g for g in groups if asked.grown(g.slots, g.step)]
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

    def grown(self, slots: frozenset[Slot], by: int) -> bool:
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
            with torch.no_grad(), torch.device("meta"), unchanged(self._model):
                made = results(self._model(*self.form.arguments(tensors)))
            taken = all(isinstance(x, torch.Tensor) for x in made)
        except Exception:
            taken = False
        self._known[key] = taken
        return taken


def small_sizes(shapes: Shapes, scale: int = 1) -> dict[str, int] | None:
    """Return small sizes, different where they may be; None if none are found."""
    restriction = ShapeClass(shapes.shape_class)
    sizes = dict(shapes.sizes)
    for i, name in enumerate(shapes.free):
        least, _, modulus, _ = restriction.bounds(name)
        wanted = max(_SMALL[i % len(_SMALL)] * scale, least)
        sizes[name] = -(-wanted // modulus) * modulus
    sizes = restriction.settled(sizes, {})
    return sizes if restriction.admits(sizes) else None


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
        with torch.no_grad(), unchanged(model):
            model(*form.arguments(tensors))
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
        if asked.grown(frozenset({slot}), step):
            return _Group(frozenset({slot}), step)
        # One of its size that never varies spoils them all: pairs come first.
        tied = [frozenset({slot, s}) for s in sorted(alike - {slot})] + [alike]
        for slots_of in tied if len(alike) > 1 else ():
            if not asked.grown(slots_of, step):
                continue
            for other in sorted(slots_of - {slot}):  # none that can be left out
                if asked.grown(slots_of - {other}, step):
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
