"""What the values of an argument have in common besides their type, as text.

A recipe holds the text, `kfuzz.numerics.domains` puts values into the domain. The parts
are joined by " and ":

* an interval, "[0, 1]", "(0, inf)" or "[-inf, 0]": a parenthesis leaves its end out, an
  infinite one the infinity;
* "probabilities along -1": not negative, of sum 1 along an axis counted from the end;
* of indices, "rising" and "distinct" along the last axis, or "distinct throughout";
  "offsets" of consecutive parts: rising, the first 0, the last all of the dimension;
  "spans" in the last two axes, a start and an end each, apart and rising;
* of truth values, "causal" and "blocks" in the last two axes, "padding" in the last.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar, Final

from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import BindingError
from kfuzz.core.random_streams import Purpose, stream

RISING: Final = "rising"
DISTINCT: Final = "distinct"
THROUGHOUT: Final = "distinct throughout"
OFFSETS: Final = "offsets"
SPANS: Final = "spans"
MASKS: Final = ("causal", "padding", "blocks")
_WORDS: Final = (RISING, DISTINCT, THROUGHOUT, OFFSETS, SPANS, *MASKS)
_INTERVAL: Final = re.compile(r"([\[(])\s*(\S+)\s*,\s*(\S+?)\s*([\])])")
_PROBABILITIES: Final = re.compile(r"probabilities along (-\d+)")


@dataclass(frozen=True)
class Interval:
    """The numbers between two ends.

    Attributes:
        low: the lower end.
        high: the upper end.
        above: whether the lower end is left out.
        below: whether the upper end is left out.
    """

    low: float
    high: float
    above: bool = False
    below: bool = False

    def __str__(self) -> str:
        """Return for example "(0, inf)"."""
        return self._between(f"{self.low:g}, {self.high:g}")

    @property
    def text(self) -> str:
        """The same with every digit of the ends."""
        return self._between(f"{self.low!r}, {self.high!r}")

    def _between(self, ends: str) -> str:
        return f"{'(' if self.above else '['}{ends}{')' if self.below else ']'}"

    def __contains__(self, number: float) -> bool:
        """Whether a number lies in it."""
        above = number > self.low if self.above else number >= self.low
        below = number < self.high if self.below else number <= self.high
        return above and below

    @property
    def is_empty(self) -> bool:
        """Whether no number lies in it."""
        if self.low == self.high:
            return self.above or self.below
        return not self.low < self.high

    @property
    def is_finite(self) -> bool:
        """Whether no infinity lies in it."""
        low = self.low > -math.inf or self.above
        return low and (self.high < math.inf or self.below)


@dataclass(frozen=True)
class Domain:
    """The parts of a domain.

    Attributes:
        interval: what numbers stay within, None for any.
        axis: along which they are probabilities, negative; 0 where they are none.
        words: what else is so.
    """

    interval: Interval | None = None
    axis: int = 0
    words: tuple[str, ...] = ()

    @property
    def rank(self) -> int:
        """The least rank of a tensor of which it says something."""
        two = any(word in ("causal", "blocks", SPANS) for word in self.words)
        return max(-self.axis, 2 * two, min(len(self.words), 1))

    @property
    def cuts(self) -> bool:
        """Whether it is that of integers which cut a dimension into parts."""
        return OFFSETS in self.words or SPANS in self.words

    @property
    def is_finite(self) -> bool:
        """Whether it holds no NaN and no infinity."""
        return bool(self.axis) or (self.interval is None or self.interval.is_finite)


@lru_cache(maxsize=1024)
def parsed(text: str) -> Domain:
    """Return the parts of a domain, "" standing for no restriction.

    Raises:
        BindingError: if the text names none.
    """
    interval, axis, words = None, 0, []
    for part in text.split(" and ") if text else ():
        if found := _PROBABILITIES.fullmatch(part):
            axis = int(found[1])
        elif part in _WORDS:
            words.append(part)
        else:
            interval = _interval(part)
    return Domain(interval, axis, tuple(words))


def _interval(part: str) -> Interval:
    found = _INTERVAL.fullmatch(part.strip())
    try:
        if found is None:
            raise ValueError
        low, high = float(found[2]), float(found[3])
        if low != low or high != high:
            raise ValueError
    except ValueError:
        raise BindingError(
            f"{part!r:.60} is no domain",
            fix='write for example (0, 1), "(0, inf)" or "[0, 1)"',
        ) from None
    return Interval(low, high, found[1] == "(", found[4] == ")")


def interval_text(within: object) -> str:
    """Return an interval that an operator declares as the text of a domain.

    Args:
        within: a text, or two ends that belong to it; None for no end.

    Raises:
        BindingError: if it is neither.
    """
    if within is None or within == "":
        return ""
    if isinstance(within, str):
        return _interval(within).text
    match within:
        case (low, high):
            ends = [e is None or _is_number(e) for e in (low, high)]
            if all(ends):
                return Interval(
                    -math.inf if low is None else float(str(low)),
                    math.inf if high is None else float(str(high)),
                    above=low is None, below=high is None,
                ).text  # fmt: skip
    raise BindingError(
        f"within={within!r:.60} is no interval",
        fix='write for example (0, 1), (None, 0) or "(0, inf)"',
    )


def _is_number(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and value == value


# Recipes: everything needed to rebuild a kernel's input bit for bit, anywhere.

LARGE_ELEMENTS: Final = 1 << 26
"""A tensor of more elements is never pinned, and judged in slices: sixteen times what
any other case may have, of which the oracle's float64 copies still fit anywhere."""


@dataclass(frozen=True)
class Fill:
    """How the values of a tensor are generated; see `kfuzz.execution.values.fills`.

    Attributes:
        family: name of a value family, e.g. "randn", "tail_big".
        seed: 64-bit seed of the counter-based generator.
        axis: the axis along which the family is structured (the one that the
            operator reduces), counted from the end (negative); -1 by default.
        source: name of the argument that a correlated family copies from.
    """

    family: str
    seed: int = 0
    axis: int = -1
    source: str | None = None


@dataclass(frozen=True)
class Plant:
    """One element overwritten after the fill.

    Attributes:
        at: logical index, one entry per axis.
        bits: raw bits of the new value, in the tensor's dtype.
    """

    at: tuple[int, ...]
    bits: int


@dataclass(frozen=True)
class TensorSpec:
    """The recipe of one tensor argument.

    Attributes:
        shape: logical sizes.
        axes: one name per axis; equal names across arguments are one dimension.
        dtype: a key of `kfuzz.core.dtypes.DTYPES`.
        strides: element strides, one per axis; None means C-contiguous.
        offset: storage offset in elements.
        fill: the value family, or None where `values` pins them.
        plants: elements overwritten after the fill.
        values: raw little-endian elements in C order (a pinned tensor).
        below: for indices the dimension, or integer scalar, that they stay below,
            else "".
        domain: what else the values have in common, see `kfuzz.core.recipe`; made
            values are put into it, pinned ones are as they are.
    """

    UNSAID: ClassVar = ("strides", "fill", "plants", "values", "domain")

    shape: tuple[int, ...]
    axes: tuple[str, ...]
    dtype: str
    strides: tuple[int, ...] | None = None
    offset: int = 0
    fill: Fill | None = None
    plants: tuple[Plant, ...] = ()
    values: bytes | None = field(default=None, repr=False)
    below: str = ""
    domain: str = ""

    @property
    def numel(self) -> int:
        """Number of logical elements."""
        return math.prod(self.shape)

    @property
    def element_strides(self) -> tuple[int, ...]:
        """Strides in elements, the contiguous ones where none are given."""
        return contiguous_strides(self.shape) if self.strides is None else self.strides

    @property
    def span(self) -> int:
        """Elements from the first to the last addressed one, inclusive."""
        return span_of(self.shape, self.element_strides)

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in C order without gaps (as torch says)."""
        return is_dense(self.shape, self.element_strides)

    def problem(self) -> str | None:
        """Return why this recipe is impossible, or None."""
        if self.dtype not in DTYPES:
            return f"unknown dtype {self.dtype!r}"
        if len(self.axes) != len(self.shape):
            return f"{len(self.axes)} axis names for {len(self.shape)} sizes"
        if min(self.shape, default=0) < 0 or self.offset < 0:
            return "negative size or offset"
        strides = self.strides
        if strides is not None and len(strides) != len(self.shape):
            return f"{len(strides)} strides for {len(self.shape)} sizes"
        if strides is not None and min(strides, default=0) < 0:
            return "negative stride (torch has none)"
        if (self.fill is None) == (self.values is None):
            return "exactly one of fill and values must be given"
        try:
            parsed(self.domain)
        except BindingError as error:
            return error.what
        if self.below and DTYPES[self.dtype].kind != "int":
            return f"indices below {self.below!r} are {self.dtype}, not integers"
        if self.values is not None:
            want = self.numel * DTYPES[self.dtype].itemsize
            if len(self.values) != want:
                return f"values hold {len(self.values)} bytes, the shape needs {want}"
            if self.dtype == "bool" and max(self.values, default=0) > 1:
                return "values hold a bool that is neither 0 nor 1"
        for plant in self.plants:
            if len(plant.at) != len(self.shape) or any(
                not 0 <= i < n for i, n in zip(plant.at, self.shape, strict=True)
            ):
                return f"plant at {plant.at} lies outside shape {self.shape}"
            if plant.bits < 0 or plant.bits >> (8 * DTYPES[self.dtype].itemsize):
                return f"plant {plant.bits:#x} is wider than {self.dtype}"
        return None


# None stands for a default that the operator computes from its other arguments. A
# text that is the name of a dtype stands for the dtype, see `is_dtype`.
Scalar = bool | int | float | str | None


def is_dtype(value: Scalar) -> bool:
    """Whether a scalar is a dtype: kernels are given the dtype, not its name."""
    return isinstance(value, str) and value in DTYPES


class Poison(StrEnum):
    """Which bits fill memory that holds no data.

    NaN shows whatever it flows into, except where a maximum, a comparison or a
    mask swallows it; there the large finite value shows. Neither alone is enough.
    """

    NAN = "nan"
    FINITE = "finite"


@dataclass(frozen=True)
class Edge:
    """Which arguments lie flush against a page that faults when touched.

    Attributes:
        side: "start" or "end" of the argument that touches the page; "" where no
            argument does, see `NOWHERE`.
        argument: the one argument that does; "" for every one.
        slack: bytes left at least between it and the page.
        readable: whether the page can be read, so that only writes fault; on a
            device it can be written too, and writes are seen as changed bytes.
        allocation: the one tensor, counted from 0, of those that the kernel allocates
            itself that does, and no argument; None for all of them where every
            argument does, else for none. Devices only.
    """

    UNSAID: ClassVar = ("allocation",)

    side: str
    argument: str = ""
    slack: int = 0
    readable: bool = False
    allocation: int | None = None


NOWHERE: Final = Edge("")
"""Drawn so that no argument touches a page, which None in a recipe leaves open."""


@dataclass(frozen=True)
class Destination:
    """Memory that a kernel is given for one of its outputs.

    Attributes:
        shape: logical sizes.
        dtype: a key of `kfuzz.core.dtypes.DTYPES`.
        strides: element strides, one per axis.
        offset: storage offset in elements.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    offset: int = 0

    def problem(self) -> str | None:
        """Return why there is no such memory, or None."""
        if self.dtype not in DTYPES:
            return f"unknown dtype {self.dtype!r:.80}"
        if len(self.strides) != len(self.shape):
            return f"{len(self.strides)} strides for {len(self.shape)} sizes"
        if min((*self.shape, *self.strides, self.offset)) < 0:
            return "negative size, stride or offset"
        return None

    def spec(self) -> TensorSpec:
        """Return where its elements lie, without values."""
        axes = tuple(f"o{i}" for i in range(len(self.shape)))
        return TensorSpec(self.shape, axes, self.dtype, self.strides, self.offset)


@dataclass(frozen=True)
class Case:
    """One concrete input of a kernel, as a recipe: same bits on every device.

    Attributes:
        tensors: the tensor arguments by parameter name, in operator order.
        scalars: the scalar arguments by parameter name.
        poison: what memory around the tensors and fresh memory hold, "nan" or
            "finite".
        edge: placement beside pages that fault, where the backend has them; None
            means none at all where all values are pinned.
        config: which of the kernel's configurations runs, modulo their number.
        layout: layout of the outputs whose memory the kernel is given, by its name
            in `kfuzz.contracts.oracle`; None means contiguous where all
            values are pinned.
        destinations: that memory by output name, as it was when the values were
            pinned; a note for what does not know the operator, no input.
        targets: GPUs for which what the kernel launches is also compiled, by the
            names of `kfuzz.execution.launches.building`.
        delays: seed of what else a GPU does while the call is repeated on it, and for
            how long; None in cases that are not pinned on one.

    What is None of these four is open: `kfuzz.core.recipe` decides it.
    """

    UNSAID: ClassVar = ("layout", "destinations", "targets", "delays")
    RETIRED: ClassVar = frozenset({"collective"})
    """Fields that stored cases may have and that mean nothing any more."""

    tensors: Mapping[str, TensorSpec]
    scalars: Mapping[str, Scalar] = field(default_factory=dict)
    poison: str | None = None
    edge: Edge | None = None
    config: int | None = None
    layout: str | None = None
    destinations: Mapping[str, Destination] = field(default_factory=dict)
    targets: tuple[str, ...] = ()
    delays: int | None = None

    @property
    def dims(self) -> dict[str, int]:
        """Size of every named dimension."""
        return {
            axis: n
            for spec in self.tensors.values()
            for axis, n in zip(spec.axes, spec.shape, strict=True)
        }

    @property
    def structure(self) -> tuple[object, ...]:
        """What cases have in common whose launches do not differ by values."""
        specs = (
            (name, s.dtype, s.shape, s.strides, s.offset)
            for name, s in self.tensors.items()
        )
        return (*specs, *self.scalars.items(), self.config)

    def bound(self, spec: TensorSpec) -> int:
        """Return what the indices of an argument stay below, 0 where there are none.

        Of offsets it is the whole of which they mark parts.
        """
        if not spec.below:
            return 0
        size = self.dims.get(spec.below, self.scalars.get(spec.below))
        return size if type(size) is int else 0

    @property
    def data(self) -> TensorSpec:
        """The first floating tensor: what the dtype of the case means."""
        specs = self.tensors.values()
        floats = (s for s in specs if DTYPES[s.dtype].kind == "float")
        return next(floats, next(iter(specs)))

    @property
    def lead(self) -> TensorSpec:
        """The first tensor that holds no indices: what rank and sizes mean."""
        specs = self.tensors.values()
        return next((s for s in specs if not s.below), next(iter(specs)))

    @property
    def at_powers(self) -> bool:
        """Whether all its sizes are powers of two, and not all of them 1."""
        sizes = self.dims.values()
        return all(n and n & (n - 1) == 0 for n in sizes) and max(sizes, default=0) > 1

    @property
    def elements(self) -> int:
        """Logical elements over all tensor arguments."""
        return sum(spec.numel for spec in self.tensors.values())

    @property
    def largest(self) -> int:
        """Logical elements of the largest tensor argument."""
        return max((spec.numel for spec in self.tensors.values()), default=0)

    @property
    def large(self) -> bool:
        """Whether some argument has more elements than a case can carry explicitly."""
        return self.largest > LARGE_ELEMENTS

    @property
    def seed(self) -> int:
        """The first fill's seed, 0 where all values are pinned.

        All random choices about a case follow from it, see `kfuzz.core.random_streams`.
        """
        fills = (s.fill.seed for s in self.tensors.values() if s.fill is not None)
        return next(fills, 0)

    @property
    def drawn_delays(self) -> int:
        """The seed of what a GPU does beside repeats of the case."""
        drawn = stream(self.seed, Purpose.DELAYS) % (1 << 32)
        return drawn if self.delays is None else self.delays

    @property
    def pinned(self) -> bool:
        """Whether every tensor carries explicit values."""
        return all(spec.values is not None for spec in self.tensors.values())

    def memory(self, name: str) -> TensorSpec:
        """Return where the elements of an argument or a destination lie.

        Raises:
            KeyError: if the case has neither of that name.
        """
        spec = self.tensors.get(name)
        return self.destinations[name].spec() if spec is None else spec

    def with_tensor(self, name: str, spec: TensorSpec) -> "Case":
        """Return a copy in which one tensor argument is replaced."""
        return replace(self, tensors={**self.tensors, name: spec})


@lru_cache(maxsize=256)
def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return C-order element strides; size-0 dims count as 1, as in torch."""
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def span_of(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return the elements from the first to the last addressed one, 0 of none."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))


def is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether elements, if there are any, lie in C order without gaps."""
    steps = zip(shape, strides, contiguous_strides(shape), strict=True)
    return 0 in shape or all(n == 1 or s == dense for n, s, dense in steps)


def unravel(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the index of an element, counted in C order."""
    index: list[int] = []
    for n in reversed(shape):
        flat, here = divmod(flat, n)
        index.append(here)
    return tuple(reversed(index))


# What a case says besides its values: poison, edge, configuration, output layout.
#
# All are drawn with the case, each from a stream of its own, and kept in its recipe.
# Recipes of earlier versions leave them open, and so do some that are no draws: their
# seed decides by the rule of that time, so that what is stored replays alike.

CONTIGUOUS: Final = "contiguous"

_SIDES: Final = (Edge("start"), Edge("end"), NOWHERE)
# Up to ten configurations share these evenly.
_CONFIGURATIONS: Final = 2520
_LAYOUTS: Final[dict[str, tuple[str, ...]]] = {
    "any": ("padded", "transposed", "stepped", "offset"),
    "inner_contiguous": ("padded", "offset"),
    "contiguous": (),
}


def _output_layouts(declaration: Declaration) -> tuple[str, ...]:
    """Return the layouts that a kernel's outputs may have; half are contiguous."""
    kinds = _LAYOUTS[declaration.layouts]
    return (CONTIGUOUS,) * max(1, len(kinds)) + kinds


def with_surroundings(case: Case, declaration: Declaration) -> Case:
    """Return a drawn case with poison, edge, configuration and output layout drawn.

    They know nothing of one another.
    """
    seed, layout = case.seed, None
    if declaration.out:
        layouts = _output_layouts(declaration)
        layout = layouts[stream(seed, Purpose.OUTPUT_LAYOUT) % len(layouts)]
    return replace(
        case,
        poison=str(list(Poison)[stream(seed, Purpose.POISON) % 2]),
        edge=drawn_edge(seed),
        config=stream(seed, Purpose.CONFIGURATION) % _CONFIGURATIONS,
        layout=layout,
    )


def drawn_edge(seed: int) -> Edge:
    """Return where a case of a seed lies beside pages: "start", "end" or nowhere.

    Nowhere too: guard zones see writes that a page far behind them does not, and
    alignments are then exact.
    """
    return _SIDES[stream(seed, Purpose.EDGE) % len(_SIDES)]


def settled(case: Case, declaration: Declaration) -> Case:
    """Return a case with nothing left open."""
    return replace(
        case,
        poison=str(poison_of(case)),
        edge=edge_of(case),
        config=config_of(case),
        layout=layout_of(case, declaration) if declaration.out else None,
    )


# What follows decides by the seed only where a recipe leaves something open: it was
# stored by a version that kept no such field.


def poison_of(case: Case) -> Poison:
    """Return the poison of a case."""
    if case.poison is not None:
        return Poison(case.poison)
    return Poison.FINITE if case.seed % 2 else Poison.NAN


def config_of(case: Case) -> int:
    """Return which configuration runs, modulo their number."""
    return case.seed // 6 % _CONFIGURATIONS if case.config is None else case.config


def edge_of(case: Case) -> Edge | None:
    """Return where a case lies beside pages; pinned cases only where they say so."""
    if case.edge is not None or case.pinned:
        return case.edge
    return _SIDES[case.seed // 2 % 3]


def layout_of(case: Case, declaration: Declaration) -> str:
    """Return the layout of the outputs; of pinned cases contiguous by default."""
    if case.layout is not None or case.pinned:
        return case.layout or CONTIGUOUS
    every = _output_layouts(declaration)
    return every[case.seed // 15120 % len(every)]
