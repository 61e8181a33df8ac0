"""scaled_matmul_blocks(a, b, scale_a, scale_b, block, dtype): scales of tiles."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.operators.quantization.scaled_matmul_fp8 import (
    CODES,
    UNITS,
    accept,
)
from kfuzz.contracts.prose import bounded


def reference(
    a: Any, b: Any, scale_a: Any, scale_b: Any, *, block: int, dtype: str
) -> Any:
    """Sum over groups g of K of scale_a[i, g] scale_b[g, j // block] a_g b_g.

    Rows of a have a scale for each `block` elements, b one for each tile of block x
    block.
    """
    left, right = nm.scaled.grouped(a, b, scale_a.shape[-1])
    t = nm.scaled.spread(scale_b, b.shape[-1]).unsqueeze(-2)
    return ((left @ right) * scale_a.mT.unsqueeze(-1) * t).sum(-3)


scaled_matmul_blocks = Operator(
    "scaled_matmul_blocks",
    inputs={
        "a": ks.tensors("M K", dtype=CODES),
        "b": ks.tensors("K N", dtype=CODES),
        "scale_a": ks.tensors("M G", dtype="float32", role="weight"),
        "scale_b": ks.tensors("G J", dtype="float32", role="weight"),
        "block": ks.scalar(128, (16, 32)),
        "dtype": ks.dtype("float32", ("float16", "bfloat16")),
    },
    oracle=reference,
    error_model=accept,
    reduced="K",
    batch="M",
    shape_class="K == G * block and N == J * block",
    usual={"G": 2, "J": 1},
    defaults=UNITS,
    **bounded("scaled_matmul_blocks", Structure.INTERVAL),
)
