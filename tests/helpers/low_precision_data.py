"""Inputs on which narrow formats differ, bit pattern by bit pattern."""

import torch
from torch import Tensor

BF16 = torch.bfloat16
EIGHT_BITS = [torch.float8_e4m3fn, torch.float8_e5m2]
# Elements that one program handles.
CHUNK = 1 << 14


def every(dtype: torch.dtype) -> Tensor:
    """Every bit pattern of a format."""
    if dtype == BF16:
        return torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(BF16)
    return torch.arange(256).to(torch.uint8).view(dtype)


def pairs(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """65,536 pairs: all of them for 8 bits, random bit patterns for 16."""
    if dtype in EIGHT_BITS:
        bits = torch.arange(1 << 16)
        first, second = (
            b.to(torch.uint8).view(dtype) for b in (bits % 256, bits // 256)
        )
        return first, second
    generator = torch.Generator().manual_seed(7)
    a = torch.randint(-(1 << 15), 1 << 15, (1 << 16,), generator=generator)
    # Half of the partners are near enough for sums to round.
    near = a + torch.randint(-(1 << 11), 1 << 11, (1 << 16,), generator=generator)
    far = torch.randint(-(1 << 15), 1 << 15, (1 << 16,), generator=generator)
    b = torch.where(far % 2 == 0, near, far)
    # Zeros, infinities, NaN, subnormals and the greatest value meet one another.
    specials = torch.tensor([0, -(1 << 15), 1, 0x7F80, -0x80, 0x7FC0, 0x7F7F])
    grid = torch.cartesian_prod(specials, specials)
    a[: len(grid)], b[: len(grid)] = grid.unbind(1)
    return a.to(torch.int16).view(BF16), b.to(torch.int16).view(BF16)


def difficult(dtype: torch.dtype) -> Tensor:
    """Values on, beside and between the midpoints of narrow formats, specials."""
    narrow = torch.cat([exact(every(d)) for d in (BF16, *EIGHT_BITS)])
    narrow = narrow[narrow.isfinite()].sort().values
    middles = (narrow[1:] + narrow[:-1]) / 2
    values = torch.cat([narrow, middles])
    infinity = float("inf")
    specials = torch.tensor([infinity, -infinity, float("nan")], dtype=dtype)
    if dtype == torch.float64:  # ties only to a rounding through float32
        beside = [values * (1 + 2.0**-40), values * (1 - 2.0**-40)]
    else:
        values = values.to(dtype)
        ends = (torch.full_like(values, sign * infinity) for sign in (1, -1))
        beside = [torch.nextafter(values, end) for end in ends]
    values = torch.cat([values, *beside, specials])
    return torch.cat([values, torch.zeros(-values.numel() % CHUNK, dtype=dtype)])


def exact(x: Tensor) -> Tensor:
    """Values as float64; torch's widening is exact."""
    return x if x.dtype == torch.float64 else x.to(torch.float32).to(torch.float64)
