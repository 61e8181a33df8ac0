"""Embedding in Triton: a program copies some rows of the table."""

import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.rows import check_indices, tile
from kfuzz.contracts.witnesses.witness import witness

SIZES = ("stride_wv", "stride_wd", "stride_i", "m", "v", "d")


@triton.jit(do_not_specialize=SIZES)
def embedding_kernel(
    weight_ptr, indices_ptr, y_ptr, stride_wv, stride_wd, stride_i, m, v, d, ROWS:
    tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y[i, :] = weight[indices[i], :], y contiguous, 0 where there is none."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    index = tl.load(indices_ptr + rows * stride_i, mask=rows < m, other=0).to(tl.int64)
    there = (index >= 0) & (index < v)
    for start in range(0, d, BLOCK):
        offs = start + lanes
        mask = (rows < m) & (offs < d)
        source = weight_ptr + index * stride_wv + offs.to(tl.int64) * stride_wd
        found = tl.load(source, mask=mask & there, other=0.0)
        tl.store(y_ptr + rows * d + offs, found, mask=mask)


def looked_up(weight: Tensor, indices: Tensor, *, checked: bool = True) -> Tensor:
    """Return weight[indices].

    Args:
        weight: the table.
        indices: of any shape.
        checked: whether indices that are out of bounds raise; else, a fault, they
            give 0.
    """
    v, d = weight.shape
    if checked:
        check_indices(indices, v)
    flat = indices.reshape(-1)
    y = weight.new_empty((*indices.shape, d))
    constants = tile(d)
    if y.numel():
        embedding_kernel[(triton.cdiv(flat.numel(), constants["ROWS"]),)](
            weight,
            flat,
            y,
            *weight.stride(),
            flat.stride(0),
            flat.numel(),
            v,
            d,
            **constants,
        )
    return y


@witness((512, 64), (128,))
@kernel(ops.embedding)
def triton_embedding(weight: Tensor, indices: Tensor) -> Tensor:
    """Conforming."""
    return looked_up(weight, indices)
