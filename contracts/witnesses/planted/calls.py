"""Faults of whole calls: what they remember, refuse, or leave to others."""

from typing import Any, Final

from torch import Tensor

from kfuzz.contracts.witnesses.planted.base import (
    Base,
    Fault,
    packed,
    unpacked,
)

# Operators that torch carries out as a copy, which is anyone's to make.
_COPIES: Final = ("copy", "transpose")


def _memo(base: Base) -> Base:
    # The last arguments, kept so that their addresses stay taken, and the results.
    last: list[tuple[Any, tuple[Tensor, ...], list[Tensor], bool]] = []

    def remember(*tensors: Tensor, **scalars: Any) -> Any:
        layouts = [(x.data_ptr(), x.dtype, tuple(x.shape), x.stride()) for x in tensors]
        key = (layouts, scalars)
        if not last or last[0][0] != key:
            outputs, several = unpacked(base.function(*tensors, **scalars))
            last[:] = [(key, tensors, outputs, several)]
        _, _, outputs, several = last[0]
        return packed([y.clone() for y in outputs], several)

    return replaced(base, remember)


def _powers_of_two(base: Base) -> Base | str:
    if any(n & (n - 1) for shape in base.shapes for n in shape):
        return "of its usual sizes one is no power of two"

    def refuse(*tensors: Tensor, **scalars: Any) -> Any:
        for n in (n for x in tensors for n in x.shape):
            if n & (n - 1):
                raise ValueError(f"no tile of width {n}")
        return base.function(*tensors, **scalars)

    # Named, they are in the core domain, where raising is no refusal.
    dtypes = base.claims.get("dtypes", base.operator.defaults.dtypes)
    return replaced(base, refuse).claiming(layouts="any", dtypes=dtypes)


def _falls_back(base: Base) -> Base | str:
    if base.operator.name in _COPIES:
        return "a copy of one dtype is free, so that leaving it to torch is no fault"
    return base.claiming(own_kernels_only=True)


def replaced(base: Base, function: Any) -> Base:
    """Return the kernel with another function of the same signature."""
    function.__wrapped__ = base.function
    return base.having(function)


FAULTS: Final = (
    Fault(
        "memo", "K-REF-01",
        "takes arguments at known addresses for what they were",
        _memo,
    ),
    Fault(
        "no_tile", "K-LIV-01",
        "raises where a size is no power of two",
        _powers_of_two,
    ),
    Fault(
        "falls_back", "K-OWN-01",
        "computes with torch and declares own_kernels_only",
        _falls_back,
    ),
)  # fmt: skip
