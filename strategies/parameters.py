"""Declarative parameters: what an operator takes, as its definition says it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kfuzz.core.domain import DISTINCT, OFFSETS, SPANS, THROUGHOUT, parsed
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import BindingError, suggestion
from kfuzz.core.recipe import Scalar

ROLES: Final = ("data", "weight", "bias", "variance", "mask")
INDEX_ROLE: Final = "index"
_MOST_STARS: Final = 2


def placed(dims: str, others: Sequence[str]) -> tuple[str, ...]:
    """Return named dimensions in order, these others standing for any "*"."""
    tokens, rest = dims.split(), tuple(others)
    if tokens.count("*") > 1:
        at = tokens.index("*")
        tokens[at : at + 1], rest = rest[:1], rest[1:]
    if "*" in tokens:
        at = tokens.index("*")
        tokens[at : at + 1] = rest
    return tuple(tokens)


@dataclass(frozen=True)
class TensorParameter:
    """A tensor argument.

    Attributes:
        dims: named dimensions, "M K"; "*" among them stands for any number of others,
            the same ones in every parameter: "* N", "B C *". Of two, "* C *", the first
            stands for the first of these, the second for the rest. A name that two
            parameters share is one size.
        role: "data" (every value family), "weight" or "bias" (mostly tame),
            "variance" (tame and mostly not negative), or "mask" (added to
            scores: zeros and -Inf, whole rows of it too, and others).
        optional: whether an implementation may do without it.
        dtype: the dtype of every case, whatever a kernel declares; "" for the
            floating ones that it declares.
        without: the parameter that selects an axis which this "*" tensor lacks,
            as the result of a sum lacks the one summed; "" for none.
        domain: what its values have in common besides, see `kfuzz.core.domain`.
    """

    dims: str
    role: str = "data"
    optional: bool = False
    dtype: str = ""
    without: str = ""
    domain: str = ""

    def __post_init__(self) -> None:
        """Check the dimension names and the role.

        Raises:
            BindingError: if either is malformed.
        """
        roles = (INDEX_ROLE,) if isinstance(self, IndexParameter) else ROLES
        if not isinstance(self.dims, str):
            raise BindingError(
                f"dims {self.dims!r} is {type(self.dims).__name__}, no text",
                fix='write for example "M K", "*" or "* N"',
            )
        names = self.names
        if self.dims.split().count("*") > _MOST_STARS or "* *" in self.dims:
            raise BindingError(
                f'dims {self.dims!r} has three "*", or two side by side',
                fix='write for example "* N", "B C *", or "* C *" where one dimension '
                "of any number stands before C",
            )
        if not all(n.isidentifier() for n in names):
            raise BindingError(
                f"dims {self.dims!r} is not a list of dimension names",
                fix='write for example "M K", "*" or "* N"',
            )
        if len(set(names)) != len(names):
            raise BindingError(f"dims {self.dims!r} repeats a name")
        if self.role not in roles:
            raise BindingError(
                f"unknown role {self.role!r}", fix=suggestion(self.role, roles)
            )
        if self.dtype and self.dtype not in DTYPES:
            raise BindingError(
                f"unknown dtype {self.dtype!r}", fix=suggestion(self.dtype, DTYPES)
            )
        if self.without and self.dims != "*":
            raise BindingError(
                f"dims {self.dims!r} lack no axis that a parameter selects",
                fix='only "*" does',
            )
        parsed(self.domain)

    @property
    def kind(self) -> str:
        """What it holds: "float", "int", "uint" or "bool"."""
        return DTYPES[self.dtype].kind if self.dtype else "float"

    @property
    def variadic(self) -> bool:
        """Whether any number of further dimensions is accepted."""
        return "*" in self.dims.split()

    @property
    def names(self) -> tuple[str, ...]:
        """The named dimensions, without "*"."""
        return tuple(name for name in self.dims.split() if name != "*")

    def axes(self, others: Sequence[str]) -> tuple[str, ...]:
        """Return the dimensions in order, these others standing for any "*"."""
        return placed(self.dims, others)

    def takes(self, axes: Sequence[str]) -> bool:
        """Whether dimensions are the named ones in order, others only where "*" is."""
        others = [axis for axis in axes if axis not in self.names]
        fits = self.variadic or not others
        return fits and tuple(axes) == self.axes(others)

    def sizes(self, shape: Sequence[int]) -> dict[str, int]:
        """Return the sizes of the named dimensions of a tensor."""
        count = len(shape) - len(self.names)
        axes = self.axes([f"_{i}" for i in range(count)])
        every = zip(axes, shape, strict=True)
        return {axis: n for axis, n in every if axis in self.names}

    def describe(self) -> str:
        """Return the domain in words."""
        note = ", optional" if self.optional else ""
        dtype = f"{self.dtype} " if self.dtype else ""
        lack = f" without axis {self.without}" if self.without else ""
        return f"{dtype}{self.role} tensor [{self.dims}]{lack}{self.kept_to}{note}"

    @property
    def repeats(self) -> bool:
        """Whether several indices may be one element in memory (a stride of 0)."""
        parts = parsed(self.domain)
        return not parts.words and not parts.axis

    @property
    def kept_to(self) -> str:
        """The domain in words, "" where there is none."""
        if not self.domain:
            return ""
        interval = parsed(self.domain).interval
        return f" in {interval}" if interval is not None else f", {self.domain}"


@dataclass(frozen=True)
class IndexParameter(TensorParameter):
    """A tensor argument of integers that select along a named dimension.

    Attributes:
        below: the dimension of another parameter, or the integer scalar, that valid
            indices stay below; of offsets the dimension of which they mark parts.
        ignored: scalar parameter whose value is admitted beside them; "" if none.
    """

    role: str = INDEX_ROLE
    below: str = ""
    ignored: str = ""

    def __post_init__(self) -> None:
        """Check the names.

        Raises:
            BindingError: if one is malformed.
        """
        super().__post_init__()
        if not self.below.isidentifier():
            raise BindingError(
                f"below={self.below!r} is not a dimension name",
                fix='write for example ks.indices("*", below="V")',
            )

    @property
    def kind(self) -> str:
        """Integers."""
        return "int"

    @property
    def selects(self) -> str:
        """The dimension from which they select others; "" where they only cut it."""
        cuts = parsed(self.domain).cuts
        return "" if cuts or self.below in self.names else self.below

    @property
    def strays(self) -> bool:
        """Whether an index may be out of bounds where nothing forbids that."""
        return not self.domain

    @property
    def demands(self) -> str:
        """What its domain asks of sizes, as a shape class; "" for nothing."""
        words = parsed(self.domain).words
        if OFFSETS in words:
            return f"{self.names[-1]} >= 2"
        if SPANS in words:
            return f"{self.names[-1]} == 2"
        count = " * ".join(self.names if THROUGHOUT in words else self.names[-1:])
        distinct = {DISTINCT, THROUGHOUT} & set(words)
        return f"{count} <= {self.below}" if distinct and count != self.below else ""

    def describe(self) -> str:
        """Return the domain in words."""
        note = f" or {self.ignored}" if self.ignored else ""
        note += ", optional" if self.optional else ""
        dtype = f"{self.dtype} " if self.dtype else ""
        if OFFSETS in parsed(self.domain).words:
            what = f"offsets of parts of {self.below}: 0, not falling, {self.below}"
            return f"{dtype}index tensor [{self.dims}], {what}{note}"
        if SPANS in parsed(self.domain).words:
            what = f"starts and ends of parts of {self.below}, apart and rising"
            return f"{dtype}index tensor [{self.dims}], {what}{note}"
        within = f"0 <= index < {self.below}{self.kept_to}"
        return f"{dtype}index tensor [{self.dims}], {within}{note}"


@dataclass(frozen=True)
class ScalarParameter:
    """A scalar argument.

    Attributes:
        default: its value where an implementation does not take it.
        domain: the values worth trying.
    """

    default: Scalar
    domain: tuple[Scalar, ...]

    def describe(self) -> str:
        """Return the domain in words."""
        values = ", ".join(repr(v) for v in dict.fromkeys((self.default, *self.domain)))
        return f"one of {values}"


@dataclass(frozen=True)
class DtypeParameter(ScalarParameter):
    """A scalar argument that is a dtype, by name: kernels get the `torch.dtype`.

    It takes the values of its domain that a kernel declares as its `dtypes`.
    """

    def __post_init__(self) -> None:
        """Check the names.

        Raises:
            BindingError: if one is no floating dtype's.
        """
        floats = [n for n, d in DTYPES.items() if d.kind == "float"]
        for name in (self.default, *self.domain):
            if name not in floats:
                raise BindingError(
                    f"{name!r} is no floating dtype", fix=suggestion(str(name), floats)
                )

    def values(self, declared: Sequence[str]) -> tuple[Scalar, ...]:
        """Return what it may be among the dtypes that a kernel declares."""
        every = dict.fromkeys((self.default, *self.domain))
        return tuple(v for v in every if v in declared) or (self.default,)

    def describe(self) -> str:
        """Return the domain in words."""
        names = ", ".join(map(str, dict.fromkeys((self.default, *self.domain))))
        return f"a dtype among those declared: {names}"


@dataclass(frozen=True)
class SizeParameter:
    """An integer argument that follows from the others; it is never drawn.

    Attributes:
        of: the dimension, or the parameter of offsets.
        longest: whether it is the longest of the parts that offsets mark.
    """

    of: str
    longest: bool = False

    @property
    def default(self) -> None:
        """There is no other value."""
        return None

    def describe(self) -> str:
        """Return the domain in words."""
        if self.longest:
            return f"the length of the longest part of {self.of}"
        return f"the size of {self.of}"


@dataclass(frozen=True)
class DimParameter:
    """An argument that selects an axis of a tensor, counted from either end.

    Attributes:
        of: name of the tensor parameter.
        default: its value where an implementation does not take it.
    """

    of: str
    default: int = -1

    def describe(self) -> str:
        """Return the domain in words."""
        return f"an axis of {self.of}, of either sign, default {self.default}"


@dataclass(frozen=True)
class ListParameter:
    """A list of tensors of one declared kind.

    Attributes:
        of: the kind; dimensions that no other parameter has are each tensor's own.
        most: how many there are at most; at least one.
    """

    of: TensorParameter
    most: int = 4

    def describe(self) -> str:
        """Return the domain in words."""
        return f"a list of 1 to {self.most} of: {self.of.describe()}"


def widest(parameters: Iterable[TensorParameter], default: int = 0) -> int:
    """Return the most named dimensions of a tensor with "*", else the default."""
    return max((len(p.names) for p in parameters if p.variadic), default=default)


Parameter = (
    TensorParameter | ScalarParameter | SizeParameter | DimParameter | ListParameter
)
