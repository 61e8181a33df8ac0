"""Rotations of pairs as complex numbers, and by tables that are chosen per pair."""

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.rows import check_indices
from kfuzz.contracts.witnesses.witness import witness

_TABLE = (32, 8)


def turned(x: Tensor, c: Tensor, s: Tensor, *, interleaved: bool) -> Tensor:
    """Return float32 pairs turned, each one float at a time."""
    e = c.shape[-1]
    first, second = (slice(0, 2 * e, 2), slice(1, 2 * e, 2)) if interleaved else (
        slice(0, e), slice(e, 2 * e)
    )  # fmt: skip
    y = x.float().clone()
    a, b = x[..., first].float(), x[..., second].float()
    y[..., first] = torch.addcmul(a * c, b, s, value=-1)
    y[..., second] = torch.addcmul(b * c, a, s)
    return y.to(x.dtype)


def at_positions(table: Tensor, positions: Tensor) -> Tensor:
    """Return float32 rows of a table, [B, S, 1, E]."""
    check_indices(positions, table.shape[0])
    return table.float()[positions].unsqueeze(-2)


@witness((2, 8, 4, 16), _TABLE, _TABLE, (2, 8), backends=("cpu",))
@kernel(ops.rope_positions)
def fused_rope_positions(
    x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, interleaved: bool = False,
    part: int = 1,
) -> Tensor:  # fmt: skip
    """Conforming."""
    c, s = at_positions(cos, positions), at_positions(sin, positions)
    return turned(x, c, s, interleaved=interleaved)


@witness((2, 8, 4, 16), (3, 2, 8, 8), (3, 2, 8, 8), backends=("cpu",))
@kernel(ops.rope_sections)
def chosen_rope_sections(
    x: Tensor, cos: Tensor, sin: Tensor, first: int = 1, second: int = 1
) -> Tensor:
    """Conforming: each pair's table by comparisons."""
    pair = torch.arange(cos.shape[-1], device=x.device)

    def chosen(table: Tensor) -> Tensor:
        later = torch.where(pair < first + second, table[1], table[2])
        return torch.where(pair < first, table[0], later).float().unsqueeze(-2)

    return turned(x, chosen(cos), chosen(sin), interleaved=False)
