"""Value recipes: families by role, correlated operands, planted specials."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

from hypothesis import strategies as st

from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import DTYPES, number_to_bits, specials
from kfuzz.core.random_streams import Purpose, generator
from kfuzz.core.recipe import (
    DISTINCT,
    THROUGHOUT,
    Plant,
    TensorSpec,
    parsed,
    unravel,
)
from kfuzz.core.value_families import (
    BOOL_FAMILIES,
    FAMILIES,
    INDEX_FAMILIES,
    INTEGER_FAMILIES,
    TILES,
    edges,
    is_hostile,
)
from kfuzz.strategies.parameters import IndexParameter, TensorParameter

# Weighted choices that do not make Hypothesis repeat a case.

T = TypeVar("T")
# An option, and which of the equal ones in its list it is.
Weighted = st.SearchStrategy[tuple[T, int]]


def weighted(options: Iterable[T]) -> Weighted[T]:
    """Return a strategy for one of the options, the first being the simplest.

    An option that is given k times is drawn k times as often; the second member
    of what is drawn numbers its copies.
    """
    seen: Counter[T] = Counter()
    pairs = []
    for option in options:
        pairs.append((option, seen[option]))
        seen[option] += 1
    return st.sampled_from(pairs)


@lru_cache(maxsize=4096)
def weighted_names(options: tuple[str, ...]) -> Weighted[str]:
    """Return the strategy of `weighted` for names, equal ones once."""
    return weighted(options)


class Chooser(Generic[T]):
    """Draws weighted options and remembers which copies they were.

    To Hypothesis, copies are different choices: it would run a case again for
    each of them (a fifth of all matmul cases, measured). Seeded with `salt`,
    such cases differ in their values instead.
    """

    def __init__(self, draw: Callable[[Weighted[Any]], tuple[Any, int]]) -> None:
        self._draw = draw
        self.salt = 0

    def __call__(self, options: Weighted[T]) -> T:
        """Draw one option."""
        option, copy = self._draw(options)
        # Odd multiplier, 24 bits: the salt of seeds (see values.seeds).
        self.salt = (self.salt * 0x9E37B1 + copy) & 0xFFFFFF
        chosen: T = option
        return chosen


_MAX_PLANTS: Final = 3
# Of so many cases one has one, one two and one three plants.
_PLANT_SHARE: Final = 15
# One case in so many holds ends of several intervals.
_ENDS_SHARE: Final = 5
# Valid families so often as hostile ones once: 1 case in 8 is hostile, nearly.
_VALID_WEIGHT: Final = 4
# Ignored indices are plants; more would make the recipe long.
_MAX_IGNORED: Final = 16

# Hypothesis draws integers of up to 24 bits uniformly, wider ones mostly small.
SEED_BITS: Final = 24
seeds: Final = st.integers(0, (1 << SEED_BITS) - 1)
plant_counts: Final = weighted(
    (0,) * (_PLANT_SHARE - _MAX_PLANTS) + tuple(range(1, _MAX_PLANTS + 1))
)


def allowed_families(declaration: Declaration) -> tuple[str, ...]:
    """Return the families that a declaration accepts, in the order of FAMILIES.

    nonfinite="undefined" removes those with NaN or infinities.
    """
    all_of_them = declaration.nonfinite != "undefined"
    return tuple(n for n, f in FAMILIES.items() if all_of_them or f.finite)


def kept_to(domain: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    """Return the families that are drawn for an argument of a domain.

    All of those allowed, but none with NaN or infinities where it holds neither.
    """
    if not domain or not parsed(domain).is_finite:
        return allowed
    return tuple(n for n in allowed if FAMILIES[n].finite)


def takes_plants(parameter: TensorParameter) -> bool:
    """Whether special values are planted in an argument."""
    is_data = parameter.kind != "float" or parameter.role == "data"
    return is_data and not isinstance(parameter, IndexParameter)


def family_options(
    parameter: TensorParameter,
    families: tuple[str, ...],
    *,
    partner: str | None = None,
    correlated: bool = False,
    shape: tuple[int, ...] = (),
    subtracts_mean: bool = False,
    hostile: bool | None = None,
) -> tuple[str, ...]:
    """Return the families for an argument, each as often as it is drawn.

    Args:
        parameter: of the argument.
        families: from `allowed_families`.
        partner: see `data_options`.
        correlated: see `data_options`.
        shape: of the argument.
        subtracts_mean: whether the operator takes the mean out of its data.
        hostile: see `index_options`.
    """
    if isinstance(parameter, IndexParameter):
        return index_options(parameter.domain, hostile=hostile)
    if parameter.kind == "bool":
        return tuple(BOOL_FAMILIES)
    if parameter.kind != "float":
        return INTEGER_OPTIONS
    if parameter.role == "mask":
        return MASK_OPTIONS
    allowed = kept_to(parameter.domain, families)
    if parameter.role == "data":
        further = ("mean",) * subtracts_mean
        further += ("long",) * (max(shape, default=0) > TILES[-1])
        return data_options(allowed, partner, correlated, further)
    return role_options(parameter.role, allowed)


@lru_cache(maxsize=1024)
def data_options(
    allowed: tuple[str, ...],
    partner: str | None,
    correlated: bool,
    further: tuple[str, ...],
) -> tuple[str, ...]:
    """Return the families of a data argument, all equally likely but for what follows.

    Args:
        allowed: from `allowed_families`.
        partner: family of the first data argument where this is another one.
            Half of the draws are what that one wants beside it: only products of
            two exact operands are exact.
        correlated: whether this argument may copy from another.
        further: keys of `Family.odds` that are so: of what takes the mean out only a
            part of the offsets is such that this cancels, and of a row of several
            blocks only large cases have one, which are few.
    """
    names = [n for n in allowed if correlated or n != "transpose_of"]
    if correlated:
        related = [n for n in names if FAMILIES[n].group == "structured"]
        # Three in ten draws rather than three families in thirty-five.
        names += related * (len(names) // max(1, 3 * len(related)) - 1)
    for key in further:
        names += [n for n in allowed for _ in range(FAMILIES[n].odds.get(key, 0))]
    beside = FAMILIES[partner].beside if partner is not None else ""
    alike = [n for n in names if beside and beside in (n, FAMILIES[n].group)]
    if alike:
        names += alike * max(1, len(names) // len(alike))
    return tuple(names) or ("randn",)


@lru_cache(maxsize=256)
def role_options(role: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    """Return the families for an argument of a role, each as often as it is drawn.

    Weights, biases and variances are mostly tame and always finite.

    Args:
        role: "variance", or any other of such arguments.
        allowed: from `allowed_families`.
    """
    role = role if role == "variance" else "weight"
    finite = [n for n in allowed if FAMILIES[n].group in _FINITE_GROUPS]
    if not any(role in FAMILIES[n].odds for n in finite):
        finite += [n for n, f in FAMILIES.items() if role in f.odds]
    return tuple(n for n in finite for _ in range(FAMILIES[n].odds.get(role, 1)))


_FINITE_GROUPS: Final = ("plain", "exact", "order", "extreme")
MASK_OPTIONS: Final = tuple(
    n for n, f in FAMILIES.items() for _ in range(f.odds.get("mask", 0))
)
INTEGER_OPTIONS: Final = tuple(
    n for n, f in INTEGER_FAMILIES.items() for _ in range(f.odds.get("integer", 1))
)
# What indices hold where all are below their bound.
INDEX_OPTIONS: Final = tuple(n for n in INDEX_FAMILIES if not is_hostile(n))
_APART: Final = (
    "index_uniform", "index_permuted", "index_reversed", "index_sorted",
)  # fmt: skip


def plants(
    shape: tuple[int, ...],
    axis: int,
    dtype: str,
    count: int,
    seed: int,
    *,
    finite: bool,
) -> tuple[Plant, ...]:
    """Return planted specials at interesting indices of a non-empty tensor.

    Along the structured axis three in four lie at an end, the middle or a tile
    edge, along other axes at an end; the rest lie anywhere.

    Args:
        shape: logical sizes, none 0.
        axis: the structured axis, negative.
        dtype: any dtype.
        count: how many.
        seed: settles values and indices.
        finite: whether NaN and infinities are left out.
    """
    if not count:
        return ()
    # Values and places come from the seed of the fill: each draw of their own
    # would cost more than all of this.
    chance = generator(seed, Purpose.PLANTS)
    bits = specials(dtype, finite=finite)
    found = []
    for _ in range(count):
        at = []
        for i, n in enumerate(shape):
            ends = edges(n) if i - len(shape) == axis else (0, n - 1)
            anywhere = chance.randrange(4) == 0
            at.append(chance.randrange(n) if anywhere else chance.choice(ends))
        found.append(Plant(tuple(at), chance.choice(bits)))
    return tuple(found)


def with_ends(tensors: Mapping[str, TensorSpec], seed: int) -> dict[str, TensorSpec]:
    """Return the arguments, in some cases with ends of their intervals planted.

    Where several have a declared interval with an end that belongs to it, all hold one
    at the same index: a state that is empty in one may be empty in another.

    Args:
        tensors: the specs of a case.
        seed: settles whether, which ends and where.
    """
    ends = {name: found for name, s in tensors.items() if (found := _ends(s))}
    chance, made = generator(seed, Purpose.ENDS), dict(tensors)
    if len(ends) < 2 or chance.randrange(_ENDS_SHARE):
        return made
    end = chance.choice((0, -1))
    place: dict[str, int] = {}
    for name, bits in ends.items():
        spec = made[name]
        for axis, n in zip(spec.axes, spec.shape, strict=True):
            place.setdefault(axis, chance.randrange(n))
        plant = Plant(tuple(place[axis] for axis in spec.axes), bits[end])
        made[name] = replace(spec, plants=(*spec.plants, plant))
    return made


def _ends(spec: TensorSpec) -> list[int]:
    """Return the bits of the ends that belong to an interval of floating numbers."""
    interval = parsed(spec.domain).interval
    if interval is None or not spec.numel or DTYPES[spec.dtype].kind != "float":
        return []
    found = []
    for end in (interval.low, interval.high):
        with suppress(ValueError):  # a format may lack the number
            found += [number_to_bits(end, spec.dtype)] if end in interval else []
    return found


@lru_cache(maxsize=32)
def index_options(domain: str, *, hostile: bool | None) -> tuple[str, ...]:
    """Return the families for indices of a domain, each as often as it is drawn.

    Where none may stand twice, equal ones would be put in a row.

    Args:
        domain: of the argument.
        hostile: whether some are not below the bound: one in eight, nearly; None
            for each valid family once.
    """
    distinct = {DISTINCT, THROUGHOUT} & set(parsed(domain).words)
    valid = _APART if distinct else INDEX_OPTIONS
    if hostile is None:
        return valid
    beyond = [n for n in INDEX_FAMILIES if hostile and is_hostile(n)]
    return (*valid * _VALID_WEIGHT, *beyond)


def ignored(
    shape: tuple[int, ...], dtype: str, value: int, seed: int
) -> tuple[Plant, ...]:
    """Return plants of an index that is to be ignored, for half of the seeds.

    A few elements, or all of a small tensor.

    Args:
        shape: logical sizes, none 0.
        dtype: an integer dtype.
        value: the index.
        seed: settles how many and where.
    """
    chance = generator(seed, Purpose.IGNORED)
    kind, count = chance.randrange(4), math.prod(shape)
    if kind < 2:
        return ()
    few = chance.randint(1, _MAX_PLANTS) if kind == 2 else _MAX_IGNORED
    flats = chance.sample(range(count), min(few, count))
    bits = number_to_bits(value, dtype)
    return tuple(Plant(unravel(flat, shape), bits) for flat in flats)
