"""int4_matmul(x, codes, scale, zero): a product with weights of 4 bits, two a byte."""

from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded
from kfuzz.core.declaration import Declaration

# What is taken from a code where no zero points are given.
MIDDLE: Final = 8


def unpacked(codes: Any) -> Any:
    """Return rows [K, N] of codes [K/2, N]: the low half of a byte, then the high."""
    return nm.scaled.nibbles(codes, 2, -2)


def weights(codes: Any, scale: Any, zero: Any) -> Any:
    """Return (codes - zero) scale, each group of rows with its own."""
    width = codes.shape[-2] // max(scale.shape[-2], 1)
    zero, scale = (t.repeat_interleave(width, -2) for t in (zero, scale))
    return (codes - zero) * scale


def reference(x: Any, codes: Any, scale: Any, zero: Any = None) -> Any:
    """X @ ((n - zero) scale), n the halves of the bytes; zero 8 by default."""
    import torch

    zero = torch.full_like(scale, MIDDLE) if zero is None else zero
    return x @ weights(unpacked(codes), scale, zero)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the product, weights rounded three times; see `numerics.models.scaled`."""
    import torch

    t = problem.tensors
    zero = t.get("zero")
    zero = torch.full_like(t["scale"], MIDDLE) if zero is None else zero
    return nm.scaled.of_nibbles(problem, unpacked(t["codes"]), zero)


int4_matmul = Operator(
    "int4_matmul",
    inputs={
        "x": ks.tensors("M K"),
        "codes": ks.tensors("L N", dtype="uint8"),
        "scale": ks.tensors("G N", role="weight"),
        "zero": ks.tensors("G N", role="bias", optional=True),
    },
    oracle=reference,
    error_model=accept,
    reduced="K",
    batch="M",
    shape_class="K == 2 * L and G >= 1 and L % G == 0",
    defaults=Declaration(intermediates="output"),
    **bounded("int4_matmul", Structure.INTERVAL),
)
