"""quantize_fp8(x, eps): 8-bit floating-point codes (E4M3) of rows, and their scales."""

from typing import TYPE_CHECKING, Any, Final

from kfuzz import strategies as ks
from kfuzz.contracts.language import Structure, Tolerance
from kfuzz.contracts.operator import Operator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from kfuzz.numerics.acceptance import Acceptance, Problem

PEAK: Final = 448.0
# `eps`: the least max|x| that a scale is made of; what serving code has.
EPS: Final = (1e-10, 1e-5)


def reference(x: Any, *, eps: float) -> Any:
    """(round(x / s), s) with s = max(max|x|, eps) / 448 over the last dimension."""
    import torch

    from kfuzz.numerics.formats import FORMATS, round_to

    scale = x.abs().amax(-1).clamp(min=eps) / PEAK
    safe = torch.where(scale > 0, scale, 1.0).unsqueeze(-1)
    codes = (x / safe).nan_to_num(nan=0.0).clamp(-PEAK, PEAK)
    return round_to(codes, FORMATS["float8_e4m3fn"]), scale


def error(problem: "Problem") -> "dict[str, Acceptance]":
    """Return the scales and the codes that some admissible scale gives."""
    from kfuzz.numerics.formats import FORMATS
    from kfuzz.numerics.models.quantization import quantized

    return quantized(problem, FORMATS["float8_e4m3fn"], PEAK)


def accept(problem: "Problem", outputs: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """Codes are x / scale, with the scale returned, rounded as declared."""
    from kfuzz.numerics.formats import FORMATS
    from kfuzz.numerics.models.quantization import consistent

    return consistent(problem, outputs, FORMATS["float8_e4m3fn"], PEAK)


quantize_fp8 = Operator(
    "quantize_fp8",
    inputs={"x": ks.tensors("* N"), "eps": ks.scalar(0.0, EPS)},
    oracle=reference,
    error_model=error,
    relation=accept,
    outputs=("q", "scale"),
    reduced="N",
    empty_reduction=False,
    tolerance=Tolerance(
        Structure.COMPOSITE,
        "scale == max(max|x|, eps) / 448 (1 -/+ 10u); q == RNE(v) clamped to -448..448 "
        "for some v in x / scale (1 -/+ 11u), with the scale returned",
        "a maximum rounds nothing; divisions within 2 ulp, of max|x| or of its "
        "reciprocal; x times a reciprocal, of the scale or of max|x|; where max|x| is "
        "448 times a power of two all are exact, and ties go to even, unless "
        "approx=True; with another store= than rne q is either neighbour of v",
    ),
    special_values="a row of zeros has any scale and codes 0; NaN in a row makes its "
    "scale NaN and leaves its codes undecided; one with an infinity has the scale Inf "
    "and codes 0, those of infinities undecided; undecided where a scale is so small "
    "that its reciprocal overflows",
)
