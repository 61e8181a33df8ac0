"""What a kernel claims for itself; the judge holds it to nothing else."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, get_args, get_origin

from kfuzz.core.accumulators import Accumulator
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import BindingError, suggestion
from kfuzz.core.shape_class import ShapeClass

if TYPE_CHECKING:
    import torch

# A page; no vector load or bulk copy asks for more.
MAX_ALIGNMENT: Final = 4096

INDEX_DTYPES: Final = ("int64", "int32")
INT32_ELEMENTS: Final = 1 << 31
"""From here on a 32-bit signed offset has wrapped."""
_LITERAL: Final[object] = Literal

Configuration = Mapping[str, bool | int | float | str]
"""Keywords of its own that an implementation is called with."""


class Claims(TypedDict, total=False):
    """The declarations as keywords of `kfuzz.kernel`: what may be written for each.

    What each means, and its default, stands in `Declaration`; several names are given
    as a sequence or a set, one also alone. A dtype may be torch's own.
    """

    dtypes: "str | torch.dtype | Collection[str | torch.dtype]"
    dims: int | Collection[int] | None
    ranks: int | Collection[int] | None
    layouts: Literal["any", "inner_contiguous", "contiguous"]
    offsets: Literal["int64", "int32"]
    alignment: int
    shape_class: str | ShapeClass | None
    accumulator: str | Accumulator
    intermediates: Literal["float32", "output"]
    algorithm: str
    approx: bool
    overflow: Literal["inf", "nan", "saturate"]
    store: Literal["rne", "rz", "stochastic"]
    subnormals: Literal["preserve", "flush", "any"]
    determinism: Literal["bitwise", "run_to_run", "none"]
    batch_invariant: bool
    configs: Sequence[Configuration]
    nonfinite: Literal["propagate", "mask", "raise", "undefined"]
    masked_row: Literal["zero", "nan", "either"]
    causal_alignment: Literal["top_left", "bottom_right"]
    ties: Literal["any", "first"]
    inplace: str | Collection[str]
    out: str | Collection[str]
    own_kernels_only: bool
    out_of_bounds: Literal["raise", "clamp", "zero", "undefined"]
    index_dtypes: "str | torch.dtype | Collection[str | torch.dtype]"


_WHOLE: Final = {
    "dims": "for the last dim only: dims={-1}",
    "ranks": "for tensors of two and three dimensions: ranks={2, 3}",
}
_HINTS: Final[Mapping[str, Any]] = Claims.__annotations__
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    name: get_args(hint)
    for name, hint in _HINTS.items()
    if get_origin(hint) is _LITERAL
}


@dataclass(frozen=True)
class Declaration:
    """A kernel's claims, each with the default of DESIGN: see contracts/README.md.

    Attributes:
        dtypes: floating dtypes accepted for the data arguments.
        dims: values accepted for the operator's `dim`; None means every dim.
        ranks: ranks accepted of the tensors with "*", of those with most named
            dimensions; None means all that the operator has.
        layouts: "any", "inner_contiguous" (stride 1 in the last dim, no
            overlap) or "contiguous".
        offsets: "int64", or "int32" where no element of an argument lies more than
            2^31 - 1 elements from the first: such shapes and strides are not drawn.
        alignment: bytes to which an unsliced argument is aligned.
        shape_class: restriction on named dimensions, or None.
        accumulator: how long sums are kept, as `kfuzz.core.accumulators`
            writes it.
        intermediates: "float32", or "output" where intermediate results are
            rounded to the output's format.
        algorithm: one of the operator's named algorithms; "" is its default class.
        approx: whether fast approximations of elementary functions are used.
        overflow: what a result beyond the output's range becomes.
        store: rounding of the final store; "stochastic" may give either neighbour.
        subnormals: whether subnormal numbers keep their value.
        determinism: what repeating a call promises.
        batch_invariant: whether rows have the same bits in every batch.
        configs: keywords of its own that the implementation is called with, a
            mapping for each configuration; none where it has no such keywords.
        nonfinite: "propagate" as IEEE 754 does; "mask", where NaN and infinities
            in the data count as 0; "raise" an exception; or "undefined".
        masked_row: what attention gives where every key is masked.
        causal_alignment: whether the causal mask leaves the first query the
            first key, or the last query all keys.
        ties: which of equal elements an index names: "any" of them, or the
            "first", and where several are named each in its turn.
        inplace: parameters that the kernel overwrites with its result; where there
            are several results, those that have the names of outputs.
        out: outputs whose memory the caller gives, each where the implementation
            has a parameter of that name; none, or all that are not written in place.
        own_kernels_only: whether none of torch's operators has a part in the
            result.
        out_of_bounds: what an index that is not below its bound does: "raise"
            an exception, "clamp" to the nearest valid one, give "zero", or
            "undefined".
        index_dtypes: integer dtypes accepted for the index arguments.
    """

    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16")
    dims: tuple[int, ...] | None = None
    layouts: str = "any"
    alignment: int = 16
    shape_class: ShapeClass | None = None
    accumulator: str = "float32"
    intermediates: str = "float32"
    algorithm: str = ""
    approx: bool = False
    overflow: str = "inf"
    store: str = "rne"
    subnormals: str = "any"
    determinism: str = "run_to_run"
    batch_invariant: bool = False
    configs: tuple[Mapping[str, bool | int | float | str], ...] = field(
        default=(), hash=False
    )
    nonfinite: str = "propagate"
    masked_row: str = "either"
    causal_alignment: str = "top_left"
    ties: str = "first"
    inplace: tuple[str, ...] = ()
    out: tuple[str, ...] = ()
    own_kernels_only: bool = False
    out_of_bounds: str = "raise"
    index_dtypes: tuple[str, ...] = ("int64",)
    offsets: str = "int64"
    ranks: tuple[int, ...] | None = None

    def reaches(self, span: int) -> bool:
        """Whether a view of so many elements, first to last, is within its offsets."""
        return self.offsets != "int32" or span <= INT32_ELEMENTS

    def config(self, number: int) -> Mapping[str, bool | int | float | str]:
        """Return the keywords of one configuration, modulo how many there are."""
        return self.configs[number % len(self.configs)] if self.configs else {}

    @property
    def promises_bits(self) -> bool:
        """Whether it says anything of the bits that equal calls give."""
        return self.determinism != "none" and self.store != "stochastic"

    def declare(self, where: str, **claims: Any) -> "Declaration":
        """Return a copy with the given claims checked and applied.

        Args:
            where: the kernel concerned, for error messages.
            claims: keywords of `kfuzz.kernel`.

        Raises:
            BindingError: on an unknown keyword or value.
        """
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        for key, value in claims.items():
            if key not in values:
                raise BindingError(
                    f"unknown declaration {key!r}",
                    where=where,
                    fix=suggestion(key, values),
                )
            values[key] = _checked(key, value, where)
        return Declaration(**values)


def _checked(key: str, value: Any, where: str) -> Any:
    if key in _CHOICES:
        if value not in _CHOICES[key]:
            raise BindingError(
                f"{key}={value!r} is not a declaration",
                where=where,
                fix=suggestion(str(value), _CHOICES[key]),
            )
        return value
    if key == "accumulator":
        return str(Accumulator.parse(value, where=where))
    if key == "dtypes":
        floats = [n for n, d in DTYPES.items() if d.kind == "float"]
        return _dtypes(key, value, floats, "a floating dtype", where)
    if key == "index_dtypes":
        return _dtypes(key, value, INDEX_DTYPES, "a dtype of indices", where)
    if key == "shape_class":
        if value is None or isinstance(value, ShapeClass):
            return value
        return ShapeClass.parse(value, where=where)
    if key == "alignment":
        good = isinstance(value, int) and 1 <= value <= MAX_ALIGNMENT
        if not good or value & (value - 1):
            raise BindingError(
                f"alignment={value!r} is not a power of two from 1 to "
                f"{MAX_ALIGNMENT} bytes",
                where=where,
            )
        return value
    if key in _WHOLE:
        if value is None:
            return None
        if isinstance(value, int):
            value = (value,)
        if not value or not all(type(d) is int for d in value):
            raise BindingError(
                f"{key}={value!r} is not a set of integers",
                where=where,
                fix=_WHOLE[key],
            )
        return tuple(sorted(set(value), reverse=key == "dims"))
    if key == "configs":
        return _configs(value, where)
    if key in ("approx", "own_kernels_only", "batch_invariant"):
        if not isinstance(value, bool):
            raise BindingError(f"{key}={value!r} is not True or False", where=where)
        return value
    if key in ("inplace", "out"):
        listed = isinstance(value, list | tuple | set)
        names = tuple(value) if listed else (value,)
        if not all(isinstance(n, str) for n in names):
            what = "parameter" if key == "inplace" else "output"
            raise BindingError(
                f"{key}={value!r} is not a tuple of {what} names", where=where
            )
        return names
    if not isinstance(value, str):
        raise BindingError(f"{key}={value!r} is not a string", where=where)
    return value


def _configs(
    value: Any, where: str
) -> tuple[Mapping[str, bool | int | float | str], ...]:
    listed = tuple(value) if isinstance(value, list | tuple) else ()
    plain = (bool, int, float, str)
    good = all(
        isinstance(c, Mapping)
        and c
        and all(isinstance(k, str) and isinstance(v, plain) for k, v in c.items())
        for c in listed
    )
    if not isinstance(value, list | tuple) or not good:
        raise BindingError(
            f"configs={value!r:.80} is not a tuple of keyword mappings",
            where=where,
            fix='for example configs=({"BLOCK": 64}, {"BLOCK": 128})',
        )
    if any(c in listed[:i] for i, c in enumerate(listed)):
        raise BindingError("configs holds one configuration twice", where=where)
    return tuple(dict(c) for c in listed)


def _dtypes(
    key: str, value: Any, valid: Sequence[str], what: str, where: str
) -> tuple[str, ...]:
    names = tuple(value) if isinstance(value, list | tuple | set) else (value,)
    names = tuple(str(n).removeprefix("torch.") for n in names)
    for name in names:
        if name not in valid:
            raise BindingError(
                f"{key}: {name!r} is not {what}",
                where=where,
                fix=suggestion(name, valid),
            )
    if not names:
        raise BindingError(f"{key} is empty", where=where)
    return tuple(n for n in valid if n in names)
