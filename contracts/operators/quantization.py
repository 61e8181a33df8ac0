"""Quantised codes, and products of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded, defined
from kfuzz.core.declaration import Declaration


def reference_dequantize_int8(q: Any, scale: Any, *, dtype: str) -> Any:
    """The product q * scale, each row with its own, before it is stored as dtype."""
    return q * scale.unsqueeze(-1)


dequantize_int8 = defined(
    "dequantize_int8",
    inputs={
        "q": ks.tensors("* N", dtype="int8"),
        "scale": ks.tensors("*", dtype="float32"),
        "dtype": ks.dtype("float32", ("float16", "bfloat16")),
    },
    oracle=reference_dequantize_int8,
    error_model=lambda problem: nm.quantization.dequantized(problem),
)


dequantize_fp8 = replace(
    dequantize_int8,
    name="dequantize_fp8",
    inputs={
        **dequantize_int8.inputs,
        "q": ks.tensors("* N", dtype="float8_e4m3fn"),
    },
    **bounded("dequantize_fp8", Structure.INTERVAL),
)


# What is taken from a code where no zero points are given.
MIDDLE: Final = 8


def unpacked_int4_matmul(codes: Any) -> Any:
    """Return rows [K, N] of codes [K/2, N]: the low half of a byte, then the high."""
    return nm.scaled.nibbles(codes, 2, -2)


def weights(codes: Any, scale: Any, zero: Any) -> Any:
    """Return (codes - zero) scale, each group of rows with its own."""
    width = codes.shape[-2] // max(scale.shape[-2], 1)
    zero, scale = (t.repeat_interleave(width, -2) for t in (zero, scale))
    return (codes - zero) * scale


def reference_int4_matmul(x: Any, codes: Any, scale: Any, zero: Any = None) -> Any:
    """X @ ((n - zero) scale), n the halves of the bytes; zero 8 by default."""
    import torch

    zero = torch.full_like(scale, MIDDLE) if zero is None else zero
    return x @ weights(unpacked_int4_matmul(codes), scale, zero)


def accept_int4_matmul(problem: nm.Problem) -> nm.Acceptance:
    """Return the product, weights rounded three times; see `numerics.models.scaled`."""
    import torch

    t = problem.tensors
    zero = t.get("zero")
    zero = torch.full_like(t["scale"], MIDDLE) if zero is None else zero
    return nm.scaled.of_nibbles(problem, unpacked_int4_matmul(t["codes"]), zero)


int4_matmul = defined(
    "int4_matmul",
    inputs={
        "x": ks.tensors("M K"),
        "codes": ks.tensors("L N", dtype="uint8"),
        "scale": ks.tensors("G N", role="weight"),
        "zero": ks.tensors("G N", role="bias", optional=True),
    },
    oracle=reference_int4_matmul,
    error_model=accept_int4_matmul,
    reduced="K",
    batch="M",
    shape_class="K == 2 * L and G >= 1 and L % G == 0",
    defaults=Declaration(intermediates="output"),
)


def unpacked_gptq_matmul(codes: Any, zero: Any) -> tuple[Any, Any]:
    """Return codes [K, N] of [K/8, N], and zero points + 1 [G, N] of [G, N/8]."""
    return nm.scaled.nibbles(codes, 8, -2), nm.scaled.nibbles(zero, 8, -1) + 1


def reference_gptq_matmul(x: Any, codes: Any, scale: Any, zero: Any) -> Any:
    """X @ ((n - zero - 1) scale), n and zero eight to an int32, the lowest bits first.

    Codes are packed along K, zero points along N, as the format of GPTQ has it.
    """
    n, z = unpacked_gptq_matmul(codes, zero)
    return x @ weights(n, scale, z)


def accept_gptq_matmul(problem: nm.Problem) -> nm.Acceptance:
    """Return the product, weights rounded three times; see `numerics.models.scaled`."""
    t = problem.tensors
    return nm.scaled.of_nibbles(problem, *unpacked_gptq_matmul(t["codes"], t["zero"]))


gptq_matmul = replace(
    int4_matmul,
    name="gptq_matmul",
    inputs={
        "x": ks.tensors("M K"),
        "codes": ks.tensors("L N", dtype="int32"),
        "scale": ks.tensors("G N", role="weight"),
        "zero": ks.tensors("G P", dtype="int32"),
    },
    oracle=reference_gptq_matmul,
    error_model=accept_gptq_matmul,
    shape_class="K == 8 * L and N == 8 * P and G >= 1 and L % G == 0",
)


def reference_scaled_matmul_int8(
    a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, *, dtype: str
) -> Any:
    """scale_a[i] scale_b[j] sum_k a[i, k] b[k, j] + bias[j], before the store."""
    y = (a.double() @ b.double()) * scale_a.unsqueeze(-1) * scale_b
    return y if bias is None else y + bias


scaled_matmul_int8 = defined(
    "scaled_matmul_int8",
    inputs={
        "a": ks.tensors("M K", dtype="int8"),
        "b": ks.tensors("K N", dtype="int8"),
        "scale_a": ks.tensors("M", dtype="float32", role="weight"),
        "scale_b": ks.tensors("N", dtype="float32", role="weight"),
        "bias": ks.tensors("N", dtype="float32", role="bias", optional=True),
        "dtype": ks.dtype("float32", ("float16", "bfloat16")),
    },
    oracle=reference_scaled_matmul_int8,
    error_model=lambda problem: nm.scaled.by_groups(problem, None),
    reduced="K",
    batch="M",
)


CODES = "float8_e4m3fn"
UNITS = Declaration(accumulator="any_tensor_core")


def accept_scaled_matmul_fp8(problem: nm.Problem) -> nm.Acceptance:
    """Return the scaled sums within R(K) and their roundings."""
    return nm.scaled.by_groups(problem, nm.FORMATS[CODES])


scaled_matmul_fp8 = replace(
    scaled_matmul_int8,
    name="scaled_matmul_fp8",
    inputs={
        **scaled_matmul_int8.inputs,
        "a": ks.tensors("M K", dtype=CODES),
        "b": ks.tensors("K N", dtype=CODES),
    },
    error_model=accept_scaled_matmul_fp8,
    defaults=UNITS,
    **bounded("scaled_matmul_fp8", Structure.INTERVAL),
)


def reference_mx_matmul(
    a: Any, b: Any, scale_a: Any, scale_b: Any, *, dtype: str
) -> Any:
    """Sum over blocks g of 32 along K of 2^(s[i, g] + t[g, j] - 254) a_g b_g.

    Scales are codes E8M0, of which 255 is NaN (OCP Microscaling Formats, version 1.0).
    """
    left, right = nm.scaled.grouped(a, b, scale_a.shape[-1])
    s, t = nm.scaled.powers(scale_a), nm.scaled.powers(scale_b)
    return ((left @ right) * s.mT.unsqueeze(-1) * t.unsqueeze(-2)).sum(-3)


mx_matmul = defined(
    "mx_matmul",
    inputs={
        "a": ks.tensors("M K", dtype=CODES),
        "b": ks.tensors("K N", dtype=CODES),
        "scale_a": ks.tensors("M G", dtype="uint8"),
        "scale_b": ks.tensors("G N", dtype="uint8"),
        "dtype": ks.dtype("float32", ("float16", "bfloat16")),
    },
    oracle=reference_mx_matmul,
    error_model=lambda problem: nm.scaled.microscaled(problem, nm.FORMATS[CODES]),
    reduced="K",
    batch="M",
    shape_class="K == 32 * G",
    defaults=UNITS,
)


# `eps`: the least max|x| that a scale is made of; what serving code has.
EPS: Final = (1e-10, 1e-5)


def quantizer(name: str, codes: str, peak: int) -> Operator:
    """Return the operator that gives rows codes on a scale of their own.

    Args:
        name: its name.
        codes: format of the codes.
        peak: the greatest code.
    """

    def reference(x: Any, *, eps: float) -> Any:
        import torch

        scale = x.abs().amax(-1).clamp(min=eps) / peak
        safe = torch.where(scale > 0, scale, 1.0).unsqueeze(-1)
        held = (x / safe).nan_to_num(nan=0.0).clamp(-peak, peak)
        if codes == "int8":
            return torch.round(held), scale
        return nm.round_to(held, nm.quantization.CODES[codes]), scale

    def error(problem: nm.Problem) -> nm.Accepted:
        """Return the scales and the codes that some allowed scale gives."""
        return nm.quantization.quantized(problem, nm.quantization.CODES[codes], peak)

    def accept(problem: nm.Problem, outputs: nm.Tensors) -> nm.Tensors:
        """Codes are x / scale, with the scale returned, rounded as declared."""
        made = nm.quantization.CODES[codes]
        return nm.quantization.consistent(problem, outputs, made, peak)

    reference.__doc__ = (
        f"(round(x / s), s) with s = max(max|x|, eps) / {peak} over the last dimension."
    )
    return Operator(
        name,
        inputs={"x": ks.tensors("* N"), "eps": ks.scalar(0.0, EPS)},
        oracle=reference,
        integers=("q",) if codes == "int8" else (),
        error_model=error,
        relation=accept,
        outputs=("q", "scale"),
        reduced="N",
        empty_reduction=False,
        **bounded(name, Structure.COMPOSITE),
    )


quantize_int8 = quantizer("quantize_int8", "int8", 127)


quantize_fp8 = quantizer("quantize_fp8", "float8_e4m3fn", 448)


def reference_scaled_matmul_blocks(
    a: Any, b: Any, scale_a: Any, scale_b: Any, *, block: int, dtype: str
) -> Any:
    """Sum over groups g of K of scale_a[i, g] scale_b[g, j // block] a_g b_g.

    Rows of a have a scale for each `block` elements, b one for each tile of block x
    block.
    """
    left, right = nm.scaled.grouped(a, b, scale_a.shape[-1])
    t = nm.scaled.spread(scale_b, b.shape[-1]).unsqueeze(-2)
    return ((left @ right) * scale_a.mT.unsqueeze(-1) * t).sum(-3)


scaled_matmul_blocks = defined(
    "scaled_matmul_blocks",
    inputs={
        "a": ks.tensors("M K", dtype=CODES),
        "b": ks.tensors("K N", dtype=CODES),
        "scale_a": ks.tensors("M G", dtype="float32", role="weight"),
        "scale_b": ks.tensors("G J", dtype="float32", role="weight"),
        "block": ks.scalar(128, (16, 32)),
        "dtype": ks.dtype("float32", ("float16", "bfloat16")),
    },
    oracle=reference_scaled_matmul_blocks,
    error_model=accept_scaled_matmul_fp8,
    reduced="K",
    batch="M",
    shape_class="K == G * block and N == J * block",
    usual={"G": 2, "J": 1},
    defaults=UNITS,
)
