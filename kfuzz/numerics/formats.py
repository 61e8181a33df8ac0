"""Floating-point formats and correct rounding from float64, the same on every device.

Everything here is made of IEEE float64 operations that are exact (scaling by
powers of two, round to integral, comparison) and of integer operations on bit
patterns, so the results are the same bits on CPU and GPU. Torch's own narrowing
is not used for rounding: float64 -> float16 goes through float32 and rounds
twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import span_of


@dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    Attributes:
        name: torch's dtype name, or "tf32".
        precision: significand bits, the hidden one included (p).
        emin: exponent of the least normal number (lambda = 2**emin).
        max_finite: greatest finite value (Omega).
        has_inf: whether infinities exist.
    """

    name: str
    precision: int
    emin: int
    max_finite: float
    has_inf: bool = True

    @property
    def unit(self) -> float:
        """Unit roundoff u = 2**-p."""
        return 2.0**-self.precision

    @property
    def min_normal(self) -> float:
        """Least positive normal number, lambda."""
        return 2.0**self.emin

    @property
    def min_subnormal(self) -> float:
        """Least positive number, eta."""
        return 2.0 ** (self.emin - self.precision + 1)

    @property
    def integral(self) -> bool:
        """Whether its numbers are the integers: see `INTEGERS`."""
        return self.emin == self.precision - 1

    @property
    def dtype(self) -> torch.dtype:
        """The torch dtype of the same name (float32 for tf32)."""
        name = "float32" if self.name == "tf32" else self.name
        dtype = getattr(torch, name)
        assert isinstance(dtype, torch.dtype)
        return dtype


# Parameters: IEEE 754-2019 and the OCP 8-bit floating point specification 1.0.
FORMATS: Final = {
    f.name: f
    for f in (
        Format("float64", 53, -1022, (2 - 2.0**-52) * 2.0**1023),
        Format("float32", 24, -126, (2 - 2.0**-23) * 2.0**127),
        Format("tf32", 11, -126, (2 - 2.0**-10) * 2.0**127),
        Format("float16", 11, -14, 65504.0),
        Format("bfloat16", 8, -126, (2 - 2.0**-7) * 2.0**127),
        Format("float8_e5m2", 3, -14, 57344.0),
        Format("float8_e4m3fn", 4, -6, 448.0, has_inf=False),
    )
}

# Integer results, compared as numbers: float64 holds them exactly up to 2**53, and
# with emin = p - 1 the least positive one is 1. NaN and infinities do not exist.
# Codes of 8 bits are symmetric here: -128 rounds beyond them.
INTEGERS: Final = {
    "int64": Format("int64", 53, 52, 2.0**53, has_inf=False),
    "int8": Format("int8", 7, 6, 127.0, has_inf=False),
}
# Results that a reference computes as integers or truth values: every one of the data
# type is a number of these, and `Acceptance.exact` tells neighbours apart.
WHOLE: Final = {
    f.name: f
    for f in (
        Format("bool", 1, 0, 1.0, has_inf=False),
        Format("uint8", 8, 7, 2.0**8 - 1, has_inf=False),
        Format("int8", 7, 6, 2.0**7, has_inf=False),
        Format("int16", 15, 14, 2.0**15, has_inf=False),
        Format("int32", 31, 30, 2.0**31, has_inf=False),
        Format("int64", 53, 52, 2.0**63, has_inf=False),
    )
}


def format_of(dtype: torch.dtype) -> Format:
    """Return the format of a torch floating dtype.

    Raises:
        KeyError: if the dtype is not one of `FORMATS`.
    """
    return FORMATS[str(dtype).removeprefix("torch.")]


def power_of_two(exponent: Tensor) -> Tensor:
    """Return 2**exponent as float64, for int64 exponents in [-1022, 1023]."""
    return ((exponent + 1023) << 52).view(torch.float64)


def exponent_of(x: Tensor) -> Tensor:
    """Return floor(log2|x|) as int64, for float64 x.

    Zeros and subnormals give -1023, infinities and NaN 1024.
    """
    return ((x.contiguous().view(torch.int64) >> 52) & 0x7FF) - 1023


def round_to(x: Tensor, fmt: Format, mode: str = "rne") -> Tensor:
    """Round float64 values to a format, correctly, in one rounding.

    Args:
        x: float64, any shape; NaN and infinities are kept.
        fmt: the target format.
        mode: "rne" (nearest, ties to even), "rd" (towards minus infinity),
            "ru" (towards plus infinity) or "rz" (towards zero).

    Returns:
        float64 values of the format; beyond its range, infinities where the
        mode rounds there (for "rne": above the midpoint past the greatest
        finite value, and at it where that value is odd, as in every IEEE 754
        format; also in formats without infinities), else the greatest finite
        value.
    """
    if fmt.name == "float64":
        return x.clone()
    finite = torch.isfinite(x)
    safe = torch.where(finite, x, torch.zeros_like(x))
    ulp_exponent = torch.clamp(
        exponent_of(safe) - (fmt.precision - 1), min=fmt.emin - fmt.precision + 1
    )
    scaled = safe * power_of_two(-ulp_exponent)
    match mode:
        case "rne":
            integral = torch.round(scaled)
        case "rd":
            integral = torch.floor(scaled)
        case "ru":
            integral = torch.ceil(scaled)
        case _:
            integral = torch.trunc(scaled)
    rounded = integral * power_of_two(ulp_exponent)
    up = float("inf") if mode in ("rne", "ru") else fmt.max_finite
    down = float("inf") if mode in ("rne", "rd") else fmt.max_finite
    rounded = torch.where(rounded > fmt.max_finite, up, rounded)
    rounded = torch.where(rounded < -fmt.max_finite, -down, rounded)
    # A result of zero keeps the sign of x, as IEEE 754 rounding does.
    rounded = torch.copysign(rounded, safe)
    return torch.where(finite, rounded, x)


def is_subnormal(x: Tensor, fmt: Format) -> Tensor:
    """Return where float64 values lie between 0 and the normal numbers of a format."""
    return (x != 0) & (x.abs() < fmt.min_normal)


def lowest_bit_exponent(x: Tensor) -> Tensor:
    """Return the exponent of the lowest set bit of each finite float64.

    Returns:
        int64 e such that x is an odd multiple of 2**e; 1 << 20 for zeros,
        which are multiples of every power.
    """
    bits = x.contiguous().view(torch.int64)
    # The hidden bit is the lowest one only where no other is; subnormal numbers, which
    # have none, have another.
    significand = (bits & ((1 << 52) - 1)) | (1 << 52)
    lowest = significand & -significand
    # The lowest set bit is a power of two below 2**53: exact as float64.
    trailing = lowest.to(torch.float64).view(torch.int64) >> 52
    field = torch.clamp((bits >> 52) & 0x7FF, min=1)
    return torch.where(x == 0, 1 << 20, field + trailing - (1075 + 1023))


# Footprints: which bytes of memory the elements of a tensor occupy.


@dataclass(frozen=True)
class Footprint:
    """Where the elements of one tensor lie.

    Attributes:
        address: byte address of the first element.
        shape: sizes.
        strides: steps between elements, in elements, none negative.
        itemsize: bytes per element.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    @classmethod
    def of(cls, tensor: Tensor) -> "Footprint":
        """Return the footprint of a strided tensor."""
        return cls(
            tensor.data_ptr(),
            tuple(tensor.shape),
            tensor.stride(),
            tensor.element_size(),
        )

    @property
    def stop(self) -> int:
        """Byte address behind the last element; `address` where there is none."""
        return self.address + self.itemsize * span_of(self.shape, self.strides)

    def overlaps(self, other: "Footprint") -> bool:
        """Whether an element of each occupies a common byte.

        Elements that lie between each other, as the columns of one buffer do,
        have no byte in common.
        """
        if 0 in self.shape + other.shape:  # NumPy before 2.4 refuses address 0
            return False
        most: Any = 1_000
        try:
            return np.shares_memory(self._array, other._array, max_work=most)
        except np.exceptions.TooHardError:  # exactly, it may take minutes
            low, high = max(self.address, other.address), min(self.stop, other.stop)
            taken = np.zeros(high - low, dtype=bool)
            taken[self._bytes(low, high) - low] = True
            return bool(taken[other._bytes(low, high) - low].any())

    def _bytes(self, low: int, high: int) -> NDArray[np.int64]:
        """Return the addresses of all bytes of elements between two addresses."""
        at = np.array([self.address], dtype=np.int64)
        for step, n in zip(self.strides, self.shape, strict=True):
            at = (at[:, None] + np.arange(n) * step * self.itemsize).ravel()
        at = (at[:, None] + np.arange(self.itemsize)).ravel()
        return at[(at >= low) & (at < high)]

    @property
    def _array(self) -> NDArray[Any]:
        """An array at the same addresses, which nobody reads."""
        strides = tuple(step * self.itemsize for step in self.strides)
        place = {
            "version": 3, "data": (self.address, True), "shape": self.shape,
            "strides": strides, "typestr": f"|V{self.itemsize}",
        }  # fmt: skip
        return np.asarray(SimpleNamespace(__array_interface__=place))


# Running a reference in float64 even where it asks for a narrower float.

_NARROW: Final = frozenset(
    {
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
    }
)


class Uncompiled(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that torch's compiler is not imported for, which takes seconds."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether to keep that compiler out: torch would import it to do so."""
        return False


class KeepFloat64(Uncompiled):  # type: ignore[no-untyped-call]
    """A mode in which casts to, and constructors of, narrower floats give float64.

    A reference may say `x.float()` or `torch.zeros(n)`; as an oracle it must not
    lose bits by it.
    """

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operator with every narrow `dtype` argument widened."""
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in _NARROW:
            kwargs["dtype"] = torch.float64
        args = tuple(
            torch.float64 if isinstance(a, torch.dtype) and a in _NARROW else a
            for a in args
        )
        out = func(*args, **kwargs)
        if not isinstance(out, Tensor) or out.dtype not in _NARROW:
            return out
        given = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        if any(x.is_floating_point() for x in given):
            return out
        # Constructors and quotients of integers take torch's default, float32.
        if not given and _draws_nothing(func):
            return func(*args, **{**kwargs, "dtype": torch.float64})
        if not given:
            return out.to(torch.float64)
        return func(*tree_map(_widened, args), **tree_map(_widened, kwargs))


class InOwnIntegers(Uncompiled):  # type: ignore[no-untyped-call]
    """A mode in which quotients of narrow integers wrap as their sums do.

    The least integer divided by -1 ends the process on processors that divide in its
    width.
    """

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operator, a quotient in int64."""
        name, kwargs = func._schema.name.removeprefix("aten::"), kwargs or {}
        given = [x for x in args if isinstance(x, Tensor)]
        real = any(x.is_floating_point() for x in given)
        if name.rstrip("_") not in _QUOTIENTS or real:
            return func(*args, **kwargs)
        wide = (x.to(torch.int64) if isinstance(x, Tensor) else x for x in args)
        out = func(*wide, **kwargs)
        if name.endswith("_"):
            return args[0].copy_(out)
        return out if out.is_floating_point() else out.to(torch.result_type(*args[:2]))


_QUOTIENTS: Final = frozenset({"div", "floor_divide", "remainder", "fmod"})


@cache
def _draws_nothing(func: Any) -> bool:
    """Whether a constructor that takes a data type gives the same numbers in any."""
    takes = any(a.name == "dtype" for a in func._schema.arguments)
    return takes and torch.Tag.nondeterministic_seeded not in func.tags


def _widened(x: Any) -> Any:
    return x.to(torch.float64) if isinstance(x, Tensor) else x


def in_float64(
    oracle: Callable[..., Any],
    tensors: Sequence[Tensor],
    scalars: dict[str, Any],
    *,
    name: str,
) -> tuple[Tensor, ...]:
    """Return an oracle's results on one member, all float64.

    Args:
        oracle: takes the tensors positionally and the scalars by keyword. It may write
            to them: they are copied before.
        tensors: in float64, without a member dimension.
        scalars: keyword arguments.
        name: the operator's name, for error messages.

    Raises:
        BindingError: if a floating result is not float64, or is no tensor.
    """
    copies = [x.clone() for x in tensors]
    with torch.no_grad(), KeepFloat64():  # type: ignore[no-untyped-call]
        returned = oracle(*copies, **scalars)
    return results_of(returned, name=name)


def results_of(returned: Any, *, name: str) -> tuple[Tensor, ...]:
    """Return what an oracle returned as a tuple of tensors.

    Raises:
        BindingError: if a floating result is not float64, or is no tensor.
    """
    results = returned if isinstance(returned, tuple | list) else (returned,)
    for result in results:
        if not isinstance(result, Tensor):
            raise BindingError(
                f"the oracle returns {type(result).__name__}, not a tensor",
                where=f"operator {name}",
            )
        kind = str(result.dtype).removeprefix("torch.")
        if not result.is_floating_point() and kind not in WHOLE:
            raise BindingError(
                f"the oracle returns {result.dtype}",
                where=f"operator {name}",
                fix=f"results are floating, or {', '.join(WHOLE)}",
            )
        if result.is_floating_point() and result.dtype is not torch.float64:
            raise BindingError(
                f"the oracle returns {result.dtype} for float64 inputs",
                where=f"operator {name}",
                fix="write it in plain torch without casts to narrower floats",
            )
    return tuple(results)
