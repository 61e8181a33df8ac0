"""Correct and faulty implementations: quantization."""

from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.numerics.formats import FORMATS, round_to
from tests.helpers.impostors import (
    Setup,
    Subject,
)

# --- correct algorithms -------------------------------------------------------


def where_by_copy(mask: Tensor, x: Tensor, y: Tensor) -> Tensor:
    out = y.clone()
    out[mask] = x[mask]
    return out


def cast(x: Tensor, *, dtype: torch.dtype) -> Tensor:
    """Round by hand: the oracle's own conversion must not be torch's."""
    to = FORMATS[str(dtype).removeprefix("torch.")]
    return round_to(x.double(), to).to(dtype)


def _greatest(x: Tensor, eps: float) -> Tensor:
    return x.float().abs().amax(-1, keepdim=True).clamp(min=eps)


def _codes(value: Tensor, peak: float) -> Tensor:
    if peak == 127:
        return torch.round(value.clamp(-peak, peak)).to(torch.int8)
    return value.clamp(-peak, peak).to(torch.float8_e4m3fn)


def dividing(peak: float, empty: float = 1.0) -> Any:
    """x / s; the scale of a row of zeros is `empty`."""

    def quantize(x: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
        scale = _greatest(x, eps) / peak
        codes = _codes(x.float() / torch.where(scale == 0, 1, scale), peak)
        return codes, torch.where(scale == 0, empty, scale).squeeze(-1)

    return quantize


def inverting(peak: float) -> Any:
    """x (peak / max|x|); a row of zeros has the scale 0."""

    def quantize(x: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
        greatest = _greatest(x, eps)
        inverse = torch.where(greatest == 0, 0.0, peak / greatest)
        return _codes(x.float() * inverse, peak), (greatest / peak).squeeze(-1)

    return quantize


def reciprocal(peak: float) -> Any:
    """x (1 / s), s as max|x| times a rounded 1 / peak."""

    def quantize(x: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
        scale = _greatest(x, eps) * torch.tensor(1 / peak)
        inverse = torch.where(scale == 0, 0.0, 1 / scale)
        return _codes(x.float() * inverse, peak), scale.squeeze(-1)

    return quantize


def in_half(peak: float) -> Any:
    """All of it in the data's own format."""

    def quantize(x: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
        scale = x.abs().amax(-1, keepdim=True).clamp(min=eps) / peak
        return _codes((x / scale).float(), peak), scale.squeeze(-1).float()

    return quantize


def dequantize(q: Tensor, scale: Tensor, *, dtype: torch.dtype) -> Tensor:
    return (q.float() * scale.unsqueeze(-1)).to(dtype)


def dequantize_fused(q: Tensor, scale: Tensor, *, dtype: torch.dtype) -> Tensor:
    """The product rounded once, to the result's format."""
    exact = q.double() * scale.double().unsqueeze(-1)
    return round_to(exact, FORMATS[str(dtype).removeprefix("torch.")]).to(dtype)


# --- subjects -----------------------------------------------------------------


def quantizer(operator: Any, peak: float, *dtypes: str) -> Subject:
    shapes: tuple[tuple[int, ...], ...] = ((3, 33), (7,), (2, 2, 1))
    scalars = ({"eps": 0.0}, {"eps": 1e-10}, {"eps": 1e-5})
    return Subject(
        operator,
        dividing(peak),
        tuple(Setup((s,), k) for s, k in zip(shapes, scalars, strict=True)),
        Setup(((4, 64),), {"eps": 0.0}),
        correct={
            "scale 0": dividing(peak, 0.0),
            "inverse": inverting(peak),
            "reciprocal": reciprocal(peak),
        },
        dtypes=dtypes,
        decided=0.8,
    )


def dequantizer(operator: Any, **known: Any) -> Subject:
    shapes: tuple[tuple[int, ...], ...] = ((3, 33), (7,), (2, 0))
    kinds = ("float32", "float16", "bfloat16")
    return Subject(
        operator,
        dequantize,
        tuple(
            Setup((s, s[:-1]), {"dtype": k}) for s, k in zip(shapes, kinds, strict=True)
        ),
        Setup(((4, 64), (4,)), {"dtype": "float32"}),
        correct={"fused": dequantize_fused},
        dtypes=("float32",),
        **known,
    )


SHAPES: Final = ((3, 33), (), (0,))
WHERE: Final = Subject(
    ops.where,
    torch.where,
    tuple(Setup((s, s, s)) for s in SHAPES),
    Setup(((4, 64),) * 3),
    correct={"copy": where_by_copy},
    dtypes=("float32",),
)
CASTS: Final = [
    Subject(
        ops.cast,
        cast,
        tuple(Setup((s,), {"dtype": name}) for s in SHAPES),
        Setup(((4, 64),), {"dtype": name}),
        correct={"torch": lambda x, dtype: x.to(dtype)},
        right=frozenset({"identity"}),
        families=("randn", "uniform01"),
        dtypes=("float32",),
    )
    for name in ("float16", "bfloat16", "float8_e4m3fn")
]
TO_FLOAT16, TO_BFLOAT16, TO_FLOAT8 = CASTS
INT8: Final = quantizer(ops.quantize_int8, 127, "float32", "bfloat16")
QUANTIZERS: Final = [INT8, quantizer(ops.quantize_fp8, 448, "float32")]
DEQUANTIZERS: Final = [
    dequantizer(ops.dequantize_int8),
    # No family of codes or of scales beside them holds an infinity.
    dequantizer(ops.dequantize_fp8, infinities=False),
]
# What overflows in E4M3 is NaN or saturated: neither is a value beyond.
TO_FLOAT8 = replace(TO_FLOAT8, has_ends=False)
_EVERY = (WHERE, TO_FLOAT16, TO_BFLOAT16, TO_FLOAT8, *QUANTIZERS, *DEQUANTIZERS)
SUBJECTS: Final = {
    f"{s.operator.name} {s.ordinary.scalars.get('dtype', '')}".strip(): s
    for s in _EVERY
}
