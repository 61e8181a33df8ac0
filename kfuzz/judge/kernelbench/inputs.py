"""What the arguments that a file gives have in common, and how values keep to it.

A candidate may rely on what holds in every draw of `get_inputs`: values that are
generated for it are put inside, and its dimensions stay tied.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

from kfuzz.judge.kernelbench.problem import SEED, Form, Sample
from kfuzz.judge.kernelbench.structure_search import structures_of
from kfuzz.judge.kernelbench.structures import Structure, interval

Slot = tuple[int, int]
"""A tensor, counted among the tensors, and one of its axes."""

Runs = Callable[[Mapping[str, Tensor]], Sequence[Tensor] | None]
"""Runs the reference on the CPU; None where it raises."""

# How far beyond the file's own numbers is asked, in parts of their spread.
_BEYOND: Final = (0.5, 3.0)
# Nearer to 0 than the least positive number that was seen, where that is taken.
_NEARER: Final = 2.0**-10
# One element in so many is put beyond.
_SHARE: Final = 4

DRAWS: Final = 5
"""How often `get_inputs` is asked; less where its arguments are large."""

# Seconds and elements that further draws may take.
_SECONDS: Final = 3.0
_ELEMENTS: Final = 1 << 26
_KNOWN: Final = (
    torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.uint8,
    torch.int8, torch.int16, torch.int32, torch.int64,
)  # fmt: skip


@dataclass(frozen=True)
class Inputs:
    """What the arguments of a reference have in common.

    Attributes:
        structures: of each argument, in the order in which values are made.
        copies: arguments that equal another, by its name, or its transpose.
        ties: dimensions that are equal in every call.
        fixed: dimensions that have one size.
        draws: from how many draws this is known; 1 where the file seeds itself.
    """

    structures: Mapping[str, tuple[Structure, ...]] = field(default_factory=dict)
    copies: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    ties: tuple[frozenset[Slot], ...] = ()
    fixed: frozenset[Slot] = frozenset()
    draws: int = 1

    def of(self, name: str) -> tuple[Structure, ...]:
        """Return the structures of one argument."""
        return self.structures.get(name, ())

    def is_discrete(self, name: str) -> bool:
        """Whether an argument has no values but the file's own."""
        return any(s.discrete for s in self.of(name))

    def is_fixed(self, name: str) -> bool:
        """Whether no values can be made for an argument but by the file."""
        return any(s.fixed for s in self.of(name))

    @property
    def has_zeros(self) -> bool:
        """Whether products with known zeros may be left out."""
        return any(s.zeros for kinds in self.structures.values() for s in kinds)

    @property
    def texts(self) -> tuple[str, ...]:
        """What was found, a line for each argument."""
        seen = f"in all {self.draws} draws" if self.draws > 1 else "in the one draw"
        told = []
        for name, kinds in self.structures.items():
            own = [s.text for s in kinds if not s.needed]
            kept = [s.text for s in kinds if s.needed]
            if own:
                told.append(f"{name} is {' and '.join(own)}, {seen}")
            told += [f"{name} is {text}" for text in kept]
        for name, (other, turned) in self.copies.items():
            what = f"the transpose of {other}" if turned else f"equal to {other}"
            told.append(f"{name} is {what}, {seen}")
        return tuple(told)

    def fitted(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return values that have what the file's own have in common."""
        made = {name: self._fitted(name, x) for name, x in values.items()}
        for name, (other, turned) in self.copies.items():
            source = made[other].mT if turned else made[other]
            if source.shape == made[name].shape:
                made[name] = source.clone(memory_format=torch.contiguous_format)
        return made

    def _fitted(self, name: str, x: Tensor) -> Tensor:
        if not self._lacks(name, x):
            return x
        if self._is_finite(name):
            x = torch.where(torch.isfinite(x), x, torch.zeros_like(x))
        for structure in self.of(name):
            if not structure.holds(x):
                x = structure.made(x)
        return x.contiguous()

    def _is_finite(self, name: str) -> bool:
        """Whether an argument holds neither NaN nor infinities.

        Few values are what they are, and where the reference takes NaN it is asked.
        """
        return not self.is_discrete(name) and not all(s.nan for s in self.of(name))

    def _lacks(self, name: str, x: Tensor) -> str:
        """Return what an argument is not, "" if it is all that it has to be."""
        if not x.numel():
            return ""
        if self._is_finite(name) and not bool(torch.isfinite(x).all()):
            return "finite"
        return next((s.text for s in self.of(name) if not s.holds(x)), "")

    def outside(self, values: Mapping[str, Tensor]) -> str:
        """Return what values lack, "" where they lack nothing."""
        for name, x in values.items():
            if lacking := self._lacks(name, x):
                return f"{name} is not {lacking}"
        for name, (other, turned) in self.copies.items():
            source = values[other].mT if turned else values[other]
            if not torch.equal(values[name], source):
                return f"{name} is not what {other} is"
        return ""


def inputs_of(form: Form) -> Inputs:
    """Return what the arguments of several draws have in common.

    Raises:
        UsageError: if they cannot be made.
    """
    draws = _drawn(form)
    names = [s.name for s in form.samples if getattr(torch, s.dtype) in _KNOWN]
    own_seed = len(draws) > 1 and all(
        torch.equal(draws[0][name], x[name]) for x in draws[1:] for name in draws[0]
    )
    if own_seed:
        draws = draws[:1]
    structures = {}
    for name in names:
        columns = [x[name] for x in draws]
        found = structures_of(columns, varying=not own_seed)
        if found:
            structures[name] = found
    copies = _copies(draws, [n for n in names if n not in structures])
    ties, fixed = _dimensions(form.samples, structures, copies)
    return Inputs(structures, copies, ties, fixed, len(draws))


def _drawn(form: Form) -> list[dict[str, Tensor]]:
    """Return the tensors of several draws, the file's first among them."""
    made = [{s.name: form.first[s.position] for s in form.samples}]
    elements = sum(x.numel() for x in made[0].values())
    began = time.monotonic()
    for seed in range(SEED + 1, SEED + DRAWS):
        short = time.monotonic() - began > _SECONDS
        large = elements * (len(made) + 1) > _ELEMENTS
        if len(made) > 1 and (short or large):
            break
        drawn = form.tensors(seed)
        if any(drawn[s.name].shape != s.shape for s in form.samples):
            continue  # its sizes vary by themselves
        made.append(drawn)
    return made


def _copies(
    draws: Sequence[Mapping[str, Tensor]], names: Sequence[str]
) -> dict[str, tuple[str, bool]]:
    """Return which arguments equal an earlier one, or its transpose, in every draw."""
    found: dict[str, tuple[str, bool]] = {}
    for i, name in enumerate(names):
        for other in names[:i]:
            if other in found or draws[0][name].numel() < 4:
                continue
            if _all_equal(draws, name, other, turned=False):
                found[name] = (other, False)
            elif draws[0][name].dim() == draws[0][other].dim() >= 2 and _all_equal(
                draws, name, other, turned=True
            ):
                found[name] = (other, True)
            if name in found:
                break
    return found


def _all_equal(
    draws: Sequence[Mapping[str, Tensor]], name: str, other: str, *, turned: bool
) -> bool:
    pairs = ((x[name], x[other].mT if turned else x[other]) for x in draws)
    return all(a.dtype is b.dtype and torch.equal(a, b) for a, b in pairs)


def _dimensions(
    samples: Sequence[Sample],
    structures: Mapping[str, tuple[Structure, ...]],
    copies: Mapping[str, tuple[str, bool]],
) -> tuple[tuple[frozenset[Slot], ...], frozenset[Slot]]:
    """Return which dimensions are tied, and which keep their size."""
    ties: list[frozenset[Slot]] = []
    fixed: set[Slot] = set()
    place = {s.name: i for i, s in enumerate(samples)}
    for name, kinds in structures.items():
        i, shape = place[name], samples[place[name]].shape
        if any(s.fixed for s in kinds):
            fixed |= {(i, axis) for axis in range(len(shape))}
        if any(s.square for s in kinds) and shape[-1] == shape[-2]:
            ties.append(frozenset({(i, len(shape) - 2), (i, len(shape) - 1)}))
    for name, (other, turned) in copies.items():
        axes = list(range(len(samples[place[name]].shape)))
        others = [*axes[:-2], axes[-1], axes[-2]] if turned else axes
        ties += [
            frozenset({(place[name], a), (place[other], b)})
            for a, b in zip(axes, others, strict=True)
        ]
    return tuple(ties), frozenset(fixed)


def interval_of(
    name: str, values: Mapping[str, Tensor], seen: tuple[float, float], runs: Runs,
    structures: Sequence[Structure] = (),
) -> Structure | None:  # fmt: skip
    """Return the interval that one argument has to keep to; None if it has none.

    A logarithm makes NaN of negative numbers, a cross entropy refuses what is no
    probability, on a GPU by ending the context. An interval that the file's own values
    have is kept where the reference needs it, and nowhere else: a candidate that takes
    numbers for positive because `torch.rand` gives such is wrong.

    Args:
        name: the argument.
        values: arguments of one call, on the CPU, of the file's own numbers.
        seen: the least and the greatest number of the argument in any draw.
        runs: the reference.
        structures: what the argument is known to have: it is asked within that.
    """
    plain = runs(values)
    if plain is None or any(_has_nan(y) for y in plain):
        return None
    least, greatest = seen
    spread = max(greatest - least, abs(greatest), 1e-3)

    def given(number: float) -> Sequence[Tensor] | None:
        made = _with(values[name], number)
        for structure in structures:
            made = made if structure.holds(made) else structure.made(made)
        return runs({**values, name: made})

    def takes(number: float) -> bool:
        made = given(number)
        return made is not None and not any(_has_nan(y) for y in made)

    low = high = None
    if not all(takes(least - far * spread) for far in _BEYOND):
        low = least * _NEARER if least > 0 and takes(least * _NEARER) else least
    if not all(takes(greatest + far * spread) for far in _BEYOND):
        high = greatest
    nan = given(float("nan")) is not None
    if low is None and high is None and nan:
        return None
    return interval(low, high, nan=nan)


def _with(x: Tensor, number: float) -> Tensor:
    """Return the values with a number at some places, the first among them."""
    made = x.clone()
    made.view(-1)[::_SHARE] = number
    return made


def _has_nan(y: Tensor) -> bool:
    return y.is_floating_point() and bool(y.isnan().any())
