"""Declarative parameters: what an operator takes, as its definition says it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import DTYPES, unpack_numbers
from kfuzz.core.errors import BindingError, suggestion
from kfuzz.core.recipe import (
    DISTINCT,
    MASKS,
    OFFSETS,
    RISING,
    SPANS,
    THROUGHOUT,
    Case,
    Scalar,
    TensorSpec,
    interval_text,
    is_dtype,
    parsed,
)

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
        domain: what its values have in common besides, see `kfuzz.core.recipe`.
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
        names = self.names if isinstance(self.dims, str) else ("",)
        if not all(n.isidentifier() for n in names):
            raise BindingError(
                f"dims {self.dims!r} is no text of dimension names",
                fix='write for example "M K", "*" or "* N"',
            )
        if self.dims.split().count("*") > _MOST_STARS or "* *" in self.dims:
            raise BindingError(
                f'dims {self.dims!r} has three "*", or two side by side',
                fix='write for example "* N", "B C *", or "* C *" where one dimension '
                "of any number stands before C",
            )
        if len(set(names)) != len(names):
            raise BindingError(
                f"dims {self.dims!r} repeats a name",
                fix="name them apart and say that they are equal: "
                'dims "N M", shape_class="N == M"',
            )
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
        words = parsed(self.domain).words
        what = f"0 <= index < {self.below}{self.kept_to}"
        if OFFSETS in words:
            what = f"offsets of parts of {self.below}: 0, not falling, {self.below}"
        elif SPANS in words:
            what = f"starts and ends of parts of {self.below}, apart and rising"
        return f"{dtype}index tensor [{self.dims}], {what}{note}"


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


# What operators declare their parameters by: `kfuzz.strategies.tensors` and others.

# An interval, see `tensors`.
Within = tuple[float | None, float | None] | str | None
# How recipes spell the floats that JSON lacks.
NUMBERS: Final = ("nan", "inf", "-inf")


def tensors(
    dims: str,
    *,
    role: str = "data",
    optional: bool = False,
    dtype: object = "",
    within: Within = None,
    probabilities: int | None = None,
    rising: bool = False,
) -> TensorParameter:
    """Return a tensor parameter with named dimensions; see `TensorParameter`.

    Args:
        dims: as of `TensorParameter`, like role and optional.
        role: what it is for.
        optional: whether an implementation may do without it.
        dtype: a name, or the `torch.dtype`.
        within: what the values stay within: both ends, which belong to it, None for no
            end: (0, 1), (None, 0); or a text, "(0, inf)", where a parenthesis leaves
            its end out. Infinities are drawn where an end is one that belongs to it,
            NaN never.
        probabilities: the axis, counted from the end, along which the values are not
            negative and sum to 1.
        rising: whether the values never fall along the last dimension; then they are
            finite.

    Raises:
        BindingError: on malformed dimension names, an unknown role or dtype, or what
            is no interval.
    """
    domain = interval_text(within)
    if rising:
        domain = f"{domain} and {RISING}".removeprefix(" and ")
    if probabilities is not None:
        if domain or type(probabilities) is not int or probabilities >= 0:
            raise BindingError(
                f"probabilities={probabilities!r} is no axis counted from the end, or "
                "stands beside within=",
                fix="write for example probabilities=-1",
            )
        domain = f"probabilities along {probabilities}"
    return TensorParameter(dims, role, optional, _name_of(dtype), domain=domain)


def masks(dims: str, *, kind: str = "", optional: bool = False) -> TensorParameter:
    """Return a parameter of truth values: a bool tensor.

    A mask that is added to scores is `tensors(..., role="mask")`.

    Args:
        dims: as of `TensorParameter`, like optional.
        kind: "causal": true up to the diagonal of the last two dimensions; "padding":
            true elements in front of every row; "blocks": squares along that diagonal;
            "" for any truth values.
        optional: whether an implementation may do without it.

    Raises:
        BindingError: on malformed dimension names, or an unknown kind.
    """
    if kind and kind not in MASKS:
        raise BindingError(f"unknown mask {kind!r}", fix=suggestion(kind, MASKS))
    made = TensorParameter(dims, optional=optional, dtype="bool", domain=kind)
    if kind not in ("", "padding") and len(made.names) < 2:
        raise BindingError(
            f"a mask that is {kind} has two named dimensions, {dims!r} has not",
            fix='write for example ks.masks("B S T", kind="causal")',
        )
    return made


def indices(
    dims: str,
    below: str,
    *,
    ignored: str = "",
    optional: bool = False,
    dtype: object = "",
    rising: bool = False,
    distinct: bool | str = False,
) -> IndexParameter:
    """Return a parameter of indices into a dimension; see `IndexParameter`.

    A permutation of N is `indices("N", below="N", distinct=True)`, a page table
    `indices("B P", below="pages")`, or `distinct="throughout"` where no page is shared.

    Args:
        dims: as of `TensorParameter`, like optional.
        below: the dimension of another parameter, or the integer scalar.
        ignored: scalar parameter whose value is admitted beside them.
        optional: whether an implementation may do without it.
        dtype: of every case; by default what a kernel declares as `index_dtypes`.
        rising: whether they never fall along the last dimension.
        distinct: whether none stands twice along the last dimension, "throughout" for
            the whole tensor. With either no index is out of bounds.

    Raises:
        BindingError: on malformed dimension names, or where distinct is neither.
    """
    if distinct not in (False, True, "throughout"):
        raise BindingError(f"distinct={distinct!r} is neither True nor 'throughout'")
    words = [RISING] if rising else []
    if distinct:
        words.append(DISTINCT if distinct is True else THROUGHOUT)
    own = _name_of(dtype)
    made = IndexParameter(
        dims, optional=optional, dtype=own, below=below, ignored=ignored,
        domain=" and ".join(words),
    )  # fmt: skip
    if words and (made.variadic or not made.names or ignored):
        raise BindingError(
            f"indices that are {made.domain} need named dimensions only, and none that "
            f"is ignored: {dims!r}"
        )
    return made


def offsets(
    dims: str, of: str, *, optional: bool = False, dtype: object = ""
) -> IndexParameter:
    """Return a parameter of offsets that cut a dimension into consecutive parts.

    They never fall; the first is 0, the last the whole size: `cu_seqlens` of a ragged
    batch. Some parts are empty. Where the number B of parts is another argument's size
    as well, `shape_class="S == B + 1"` says so.

    Args:
        dims: "S", the number of offsets: one more than that of the parts.
        of: the dimension that is cut.
        optional: whether an implementation may do without it.
        dtype: of every case; by default what a kernel declares as `index_dtypes`.

    Raises:
        BindingError: if dims is not one name.
    """
    made = IndexParameter(
        dims, optional=optional, dtype=_name_of(dtype), below=of, domain=OFFSETS
    )
    if made.variadic or len(made.names) != 1:
        raise BindingError(
            f"offsets have one dimension, not {dims!r}",
            fix='write for example ks.offsets("S", of="T")',
        )
    return made


def spans(
    dims: str, of: str, *, optional: bool = False, dtype: object = ""
) -> IndexParameter:
    """Return a parameter of a start and an end each of parts that lie in a dimension.

    A part begins where the one before it ends, or later: what lies between is a gap,
    as behind the sequences of a batch that has room for longer ones. Some are empty.
    The argument has a second axis of size 2; a kernel that takes starts and lengths is
    bound by a function that gives it `spans[:, 0]` and `spans[:, 1] - spans[:, 0]`.

    Args:
        dims: "B", the number of parts.
        of: the dimension in which they lie.
        optional: whether an implementation may do without it.
        dtype: of every case; by default what a kernel declares as `index_dtypes`.

    Raises:
        BindingError: if dims is not one name.
    """
    made = IndexParameter(
        f"{dims} ends", optional=optional, dtype=_name_of(dtype), below=of,
        domain=SPANS,
    )  # fmt: skip
    if made.variadic or len(made.names) != 2:
        raise BindingError(
            f"spans have one dimension and their ends, not {dims!r}",
            fix='write for example ks.spans("B", of="T")',
        )
    return made


def lists(of: TensorParameter, most: int = 4) -> ListParameter:
    """Return a parameter that is a list of tensors; see `ListParameter`.

    Raises:
        BindingError: if what is to be listed is no tensor parameter, or most is no
            number from 1 up.
    """
    if not isinstance(of, TensorParameter) or of.without:
        raise BindingError(
            f"a list of {of!r:.60}", fix='write for example ks.lists(ks.tensors("N"))'
        )
    if type(most) is not int or most < 1:
        raise BindingError(f"a list of at most {most!r} tensors")
    return ListParameter(of, most)


def size(of: str) -> SizeParameter:
    """Return a parameter that is the size of a dimension, such as `num_experts`."""
    return SizeParameter(of)


def longest(of: str) -> SizeParameter:
    """Return a parameter that is the length of the longest part, `max_seqlen`.

    Args:
        of: the parameter of offsets or spans.
    """
    return SizeParameter(of, longest=True)


def scalar(default: Scalar, domain: Sequence[Scalar] = ()) -> ScalarParameter:
    """Return a scalar parameter that takes its default or a value of the domain.

    Raises:
        BindingError: if a value is a text that a recipe would read as another thing.
    """
    for value in (default, *domain):
        if is_dtype(value) or (isinstance(value, str) and value in NUMBERS):
            raise BindingError(
                f"a scalar cannot be the text {value!r}",
                fix="a dtype is ks.dtype(...), a number is a float",
            )
    return ScalarParameter(default, tuple(domain))


def dtype(default: object, domain: Sequence[object] = ()) -> DtypeParameter:
    """Return a scalar parameter that is a dtype, see `DtypeParameter`.

    Args:
        default: a name, or the `torch.dtype`.
        domain: others worth trying.

    Raises:
        BindingError: on what is no floating dtype.
    """
    return DtypeParameter(_name_of(default), tuple(map(_name_of, domain)))


def _name_of(given: object) -> str:
    """Return the name of a dtype, which may be given as torch's own."""
    return str(given).removeprefix("torch.")


def dim(of: str, default: int = -1) -> DimParameter:
    """Return a parameter that selects an axis of the tensor parameter `of`."""
    return DimParameter(of, default)


# Whether a pinned case is one of those that strategies may draw.
#
# What is made smaller from a drawn case stays among them: a kernel promises nothing for
# what its declaration leaves undefined, and nobody would ever find it there.


def may_be_drawn(
    parameters: Mapping[str, Parameter], declaration: Declaration, case: Case
) -> bool:
    """Whether values, scalars and layouts of a case are such as strategies draw.

    Shapes, `dim` and dtypes are the operator's to admit. Values that are not pinned
    count as drawn.
    """
    for name, value in case.scalars.items():
        parameter = parameters.get(name)
        if type(parameter) is ScalarParameter:
            known = (parameter.default, *parameter.domain)
            if not any(value == v and type(value) is type(v) for v in known):
                return False
    for name, spec in case.tensors.items():
        tensor = parameters.get(name)
        if not isinstance(tensor, TensorParameter):
            return False
        if not _keeps_layout(spec, declaration):
            return False
        if isinstance(tensor, IndexParameter):
            ignored = ignored_index(parameters, tensor, case)
            if not _keeps_bounds(spec, declaration, case, ignored):
                return False
        elif not _keeps_finite(spec, tensor, declaration):
            return False
    return True


def _keeps_layout(spec: TensorSpec, declaration: Declaration) -> bool:
    if declaration.layouts == "contiguous":
        return spec.is_contiguous and not spec.offset
    if declaration.layouts == "inner_contiguous":
        inner = not spec.shape or spec.shape[-1] == 1 or spec.element_strides[-1] == 1
        unit = max(1, declaration.alignment // DTYPES[spec.dtype].itemsize)
        return inner and spec.offset % unit == 0
    return True


def ignored_index(
    parameters: Mapping[str, Parameter], index: IndexParameter, case: Case
) -> int | None:
    """Return the index that is admitted beside those in bounds, None if none is."""
    scalar = parameters.get(index.ignored)
    if not isinstance(scalar, ScalarParameter):
        return None
    found = case.scalars.get(index.ignored, scalar.default)
    return found if isinstance(found, int) else None


def _keeps_bounds(
    spec: TensorSpec, declaration: Declaration, case: Case, ignored: Scalar
) -> bool:
    """Whether no index is out of bounds where nothing is declared for one."""
    if spec.values is None or declaration.out_of_bounds != "undefined":
        return True
    bound = case.bound(spec)
    indices = set(unpack_numbers(spec.values, spec.dtype))
    return all(0 <= i < bound or i == ignored for i in indices)


def _keeps_finite(
    spec: TensorSpec, parameter: TensorParameter, declaration: Declaration
) -> bool:
    """Whether a tensor holds no more NaN and infinities than are drawn for its role.

    Of weights, biases and variances none, of masks -Inf.
    """
    if spec.values is None or DTYPES[spec.dtype].kind != "float":
        return True
    if parameter.role == "data" and declaration.nonfinite != "undefined":
        return True  # a domain says more
    allowed = {-math.inf} if parameter.role == "mask" else set()
    values = set(unpack_numbers(spec.values, spec.dtype))
    return all(math.isfinite(v) or v in allowed for v in values)
