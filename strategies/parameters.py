"""Declarative parameters: what an operator takes, as its definition says it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import BindingError, suggestion
from kfuzz.core.recipe import Scalar, is_dtype

ROLES: Final = ("data", "weight", "bias", "variance", "mask")
INDEX_ROLE: Final = "index"
# How recipes spell the floats that JSON lacks.
NUMBERS: Final = ("nan", "inf", "-inf")


@dataclass(frozen=True)
class TensorParameter:
    """A tensor argument.

    Attributes:
        dims: named dimensions, "M K"; "*" in front stands for any leading ones.
            A name that two parameters share is one size.
        role: "data" (every value family), "weight" or "bias" (mostly tame),
            "variance" (tame and mostly not negative), or "mask" (added to
            scores: zeros and -Inf, whole rows of it too, and others).
        optional: whether an implementation may do without it.
        dtype: the dtype of every case, whatever a kernel declares; "" for the
            floating ones that it declares.
        without: the parameter that selects an axis which this "*" tensor lacks,
            as the result of a sum lacks the one summed; "" for none.
    """

    dims: str
    role: str = "data"
    optional: bool = False
    dtype: str = ""
    without: str = ""

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
        if "*" in names or not all(n.isidentifier() for n in names):
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

    @property
    def kind(self) -> str:
        """What it holds: "float", "int", "uint" or "bool"."""
        return DTYPES[self.dtype].kind if self.dtype else "float"

    @property
    def variadic(self) -> bool:
        """Whether any number of leading dimensions is accepted."""
        return self.dims.split()[:1] == ["*"]

    @property
    def names(self) -> tuple[str, ...]:
        """The named dimensions, without the leading "*"."""
        return tuple(self.dims.split()[int(self.variadic) :])

    def describe(self) -> str:
        """Return the domain in words."""
        note = ", optional" if self.optional else ""
        dtype = f"{self.dtype} " if self.dtype else ""
        lack = f" without axis {self.without}" if self.without else ""
        return f"{dtype}{self.role} tensor [{self.dims}]{lack}{note}"


@dataclass(frozen=True)
class IndexParameter(TensorParameter):
    """A tensor argument of integers that select along a named dimension.

    Attributes:
        below: the dimension of another parameter that valid indices stay below.
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

    def describe(self) -> str:
        """Return the domain in words."""
        note = f" or {self.ignored}" if self.ignored else ""
        note += ", optional" if self.optional else ""
        return f"index tensor [{self.dims}], 0 <= index < {self.below}{note}"


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


Parameter = TensorParameter | ScalarParameter | DimParameter


def tensors(
    dims: str, *, role: str = "data", optional: bool = False, dtype: object = ""
) -> TensorParameter:
    """Return a tensor parameter with named dimensions; see `TensorParameter`.

    Args:
        dims: as of `TensorParameter`, like role and optional.
        role: what it is for.
        optional: whether an implementation may do without it.
        dtype: a name, or the `torch.dtype`.

    Raises:
        BindingError: on malformed dimension names, an unknown role or dtype.
    """
    return TensorParameter(dims, role, optional, _name_of(dtype))


def masks(dims: str, *, optional: bool = False) -> TensorParameter:
    """Return a parameter of truth values: a bool tensor.

    A mask that is added to scores is `tensors(..., role="mask")`.

    Raises:
        BindingError: on malformed dimension names.
    """
    return TensorParameter(dims, optional=optional, dtype="bool")


def indices(
    dims: str, below: str, *, ignored: str = "", optional: bool = False
) -> IndexParameter:
    """Return a parameter of indices into a dimension; see `IndexParameter`.

    Raises:
        BindingError: on malformed dimension names.
    """
    return IndexParameter(dims, optional=optional, below=below, ignored=ignored)


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
