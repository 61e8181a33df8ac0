"""Tensors of any rank as a matrix of rows, the way row kernels take them."""

import math
from typing import Final

import torch
from torch import Tensor

# Each step over a tile costs the interpreter a millisecond, whatever its size.
MAX_ROWS: Final = 16
MAX_BLOCK: Final = 4096
MAX_TILE: Final = 16384
# Elements that a warp takes before another one is added: 32 a thread.
PER_WARP: Final = 1024
# Blocks of kernels that are compiled for few sizes.
SHORT_BLOCK: Final = 64
LONG_BLOCK: Final = 1024


def tile(n: int) -> dict[str, int]:
    """Return ROWS, BLOCK and num_warps of a program over rows of length `n`.

    BLOCK is the next power of 2, so that it is padded except where `n` is one;
    rows longer than `MAX_BLOCK` are read in several blocks.
    """
    block = min(1 << max(n - 1, 0).bit_length(), MAX_BLOCK)
    rows = min(MAX_ROWS, MAX_TILE // block)
    warps = max(rows * block // PER_WARP, 4)
    return {"ROWS": rows, "BLOCK": block, "num_warps": warps}


def few_tiles(n: int) -> dict[str, int]:
    """Return as `tile` one of two tiles, so that two binaries serve all lengths."""
    wide = n > SHORT_BLOCK
    return {
        "ROWS": MAX_ROWS,
        "BLOCK": LONG_BLOCK if wide else SHORT_BLOCK,
        "num_warps": 16 if wide else 4,
    }


def as_rows(x: Tensor, dim: int) -> Tensor:
    """Return `x` as [rows, n], n the size of `dim`.

    A view with strides where the leading dimensions allow it, else a copy.
    """
    moved = x.movedim(dim, -1)
    return moved.reshape(math.prod(moved.shape[:-1]), moved.shape[-1])


def restored(rows: Tensor, like: Tensor, dim: int) -> Tensor:
    """Return [rows, n] as a view of the shape of `like`; undoes `as_rows`."""
    return rows.reshape(like.movedim(dim, -1).shape).movedim(-1, dim)


def empty_rows(x: Tensor) -> Tensor:
    """Return an uninitialised contiguous tensor of the shape and dtype of `x`."""
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def reduced_shape(x: Tensor, dim: int) -> torch.Size:
    """Return the shape of `x` without `dim`."""
    return x.movedim(dim, -1).shape[:-1]


def check_indices(indices: Tensor, bound: int, *, ignored: int | None = None) -> None:
    """Refuse indices outside [0, bound) that are not the ignored one.

    Raises:
        IndexError: naming the bound.
    """
    bad = (indices < 0) | (indices >= bound)
    if ignored is not None:
        bad &= indices != ignored
    if bool(bad.any()):
        raise IndexError(f"an index is not below {bound}")
