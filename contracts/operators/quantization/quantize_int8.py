"""quantize_int8(x, eps): symmetric 8-bit integer codes of rows, and their scales."""

from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded

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

    def error(problem: "nm.Problem") -> "nm.Accepted":
        """Return the scales and the codes that some allowed scale gives."""
        return nm.quantization.quantized(problem, nm.quantization.CODES[codes], peak)

    def accept(problem: "nm.Problem", outputs: "nm.Tensors") -> "nm.Tensors":
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
