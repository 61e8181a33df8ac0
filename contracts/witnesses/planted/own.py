"""The Triton twins bound once more, as kernels that leave nothing to torch."""

from typing import Final

from kfuzz.contracts import kernel
from kfuzz.contracts.witnesses.roster import everywhere
from kfuzz.contracts.witnesses.witness import Witness

# Twins that leave something to torch, and what.
LEAVE: Final = {
    "triton_embedding": "the check of its indices",
    "triton_cross_entropy": "the check of its labels, and the mean",
    "triton_kl_div": "the mean or the sum",
    "triton_js_div": "the mean or the sum",
    "triton_bce_with_logits": "the mean or the sum",
}

_TWINS: Final = [
    w
    for w in everywhere().values()
    if w.kernel.startswith("triton_") and w.kernel not in LEAVE and w.dtype == "float32"
]
WITNESSES: Final = [
    Witness(f"own_{w.kernel}", "planted.own", "", w.shapes, w.dtype) for w in _TWINS
]

for _twin in _TWINS:
    _bound = _twin.load()
    _claims = {n: getattr(_bound.declaration, n) for n in _bound.explicit}
    kernel(
        _bound.operator, name=f"own_{_twin.kernel}",
        **{**_claims, "own_kernels_only": True},
    )(_bound.function)  # fmt: skip
