"""How kernels are launched: over blocks of elements, over tensors as rows."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
import triton
from torch import Tensor

BLOCK: Final = 1024
"""Elements of contiguous memory that one program takes."""

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


def empty(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return an uninitialised contiguous tensor of the shape of `x`."""
    return torch.empty(x.shape, dtype=dtype or x.dtype, device=x.device)


def over_elements(
    function: Any, tensors: Sequence[Tensor], *scalars: Any, **constants: Any
) -> Tensor:
    """Launch a kernel of contiguous tensors, their size and scalars, if it is not 0.

    Returns:
        The last of the tensors.
    """
    if n := tensors[-1].numel():
        grid = (triton.cdiv(n, BLOCK),)
        function[grid](*tensors, n, *scalars, BLOCK=BLOCK, **constants)
    return tensors[-1]


def over_rows(
    function: Any, rows: Tensor, y: Tensor, tiles: Mapping[str, int], **constants: Any
) -> None:
    """Launch a kernel of rows and their results, with the strides and sizes of rows."""
    if rows.numel():
        grid = (triton.cdiv(rows.shape[0], tiles["ROWS"]),)
        function[grid](rows, y, *rows.stride(), *rows.shape, **tiles, **constants)


def each_of_rows(
    function: Any,
    x: Tensor,
    dim: int,
    tiles: Callable[[int], Mapping[str, int]],
    **constants: Any,
) -> Tensor:
    """Return what a kernel makes of each element along `dim`, of the shape of `x`."""
    rows = as_rows(x, dim)
    y = empty(rows)
    over_rows(function, rows, y, tiles(rows.shape[1]), **constants)
    return restored(y, x, dim)


def one_of_rows(
    function: Any,
    x: Tensor,
    dim: int,
    tiles: Callable[[int], Mapping[str, int]],
    dtype: torch.dtype | None = None,
    **constants: Any,
) -> Tensor:
    """Return what a kernel makes of all elements along `dim`."""
    rows = as_rows(x, dim)
    y = rows.new_empty(rows.shape[0], dtype=dtype)
    over_rows(function, rows, y, tiles(rows.shape[1]), **constants)
    return y.reshape(reduced_shape(x, dim))


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
