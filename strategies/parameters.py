"""Declarative parameters: what an operator takes, as its definition says it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kfuzz.core.errors import BindingError, suggestion
from kfuzz.core.recipe import Scalar

ROLES: Final = ("data", "weight", "bias", "variance", "mask")
INDEX_ROLE: Final = "index"


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
    """

    dims: str
    role: str = "data"
    optional: bool = False

    def __post_init__(self) -> None:
        """Check the dimension names and the role.

        Raises:
            BindingError: if either is malformed.
        """
        roles = (INDEX_ROLE,) if isinstance(self, IndexParameter) else ROLES
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
        return f"{self.role} tensor [{self.dims}]{note}"


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
    dims: str, *, role: str = "data", optional: bool = False
) -> TensorParameter:
    """Return a tensor parameter with named dimensions; see `TensorParameter`.

    Raises:
        BindingError: on malformed dimension names or an unknown role.
    """
    return TensorParameter(dims, role, optional)


def indices(
    dims: str, below: str, *, ignored: str = "", optional: bool = False
) -> IndexParameter:
    """Return a parameter of indices into a dimension; see `IndexParameter`.

    Raises:
        BindingError: on malformed dimension names.
    """
    return IndexParameter(dims, optional=optional, below=below, ignored=ignored)


def scalar(default: Scalar, domain: Sequence[Scalar] = ()) -> ScalarParameter:
    """Return a scalar parameter that takes its default or a value of the domain."""
    return ScalarParameter(default, tuple(domain))


def dim(of: str, default: int = -1) -> DimParameter:
    """Return a parameter that selects an axis of the tensor parameter `of`."""
    return DimParameter(of, default)
