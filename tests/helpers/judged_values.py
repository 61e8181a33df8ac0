"""Stored results beside acceptances that ask for everything a comparator can do."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.formats import FORMATS, INTEGERS, Format, round_to

OUTPUTS: Final = [
    f for f in (*FORMATS.values(), *INTEGERS.values()) if f.name != "tf32"
]
_STORES: Final = ("rne", "rz")
_OVERFLOWS: Final = ("inf", "nan", "saturate")
_FLUSHES: Final = ((False, False), (True, False), (True, True))


def flags() -> Iterator[tuple[Format, str, str, tuple[bool, bool], bool, bool]]:
    """Yield format, store, overflow, flush, signs of zeros, relation.

    Each format meets each value of each flag, and all pairs meet in some format.
    """
    every = list(itertools.product(_STORES, _OVERFLOWS, _FLUSHES))
    for i, fmt in enumerate(OUTPUTS):
        for j in range(3):
            store, overflow, flush = every[(7 * j + 5 * i) % len(every)]
            yield fmt, store, overflow, flush, (i + j) % 2 == 0, j == 1


def edges(fmt: Format) -> Tensor:
    """Return the numbers at which a format's rounding changes, and their neighbours."""
    top, least, normal = fmt.max_finite, fmt.min_subnormal, fmt.min_normal
    past = [top * (1 + fmt.unit / 2), top * (1 + fmt.unit)] if top < 1e300 else []
    numbers = [
        0.0, least, least / 2, least * 1.5, normal, normal - least, top, *past, 1.0,
        1 + fmt.unit, 1 + 3 * fmt.unit, 1 - fmt.unit / 2, 2.5, 0.1, 1e300, 1e-300,
        5e-324, float("inf"),
    ]  # fmt: skip
    one_sign = torch.tensor(numbers, dtype=torch.float64)
    nan = torch.tensor([float("nan")], dtype=torch.float64)
    found = torch.cat([one_sign, -one_sign, nan])
    ends = torch.tensor([float("inf"), float("-inf")], dtype=torch.float64)
    return torch.cat([found, *(torch.nextafter(found, end) for end in ends)])


def judged(
    shape: tuple[int, ...],
    fmt: Format,
    store: str,
    overflow: str,
    flush: tuple[bool, bool],
    signed_zeros: bool,
    is_related: bool,
    *,
    seed: int,
) -> tuple[Tensor, Acceptance, Tensor | None]:
    """Return results [members, *shape], an acceptance, and a relation's mask.

    Some results lie near the interval's ends, some anywhere.
    """
    generator = torch.Generator().manual_seed(seed)
    numbers = edges(fmt)

    def pick() -> Tensor:
        return numbers[torch.randint(0, len(numbers), shape, generator=generator)]

    def share(part: float) -> Tensor:
        return torch.rand(shape, generator=generator) < part

    def usual() -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator) * 3

    reference = torch.where(share(0.5), usual(), pick())
    width = reference.abs() * 4 * fmt.unit * torch.rand(shape, generator=generator)
    one, other = pick(), pick()
    near = share(0.7)
    low = torch.where(near, reference - width, torch.minimum(one, other))
    high = torch.where(near, reference + width, torch.maximum(one, other))
    acceptance = Acceptance(
        reference=reference,
        low=low.nan_to_num(0.0, 0.0, 0.0),
        high=high.nan_to_num(0.0, 0.0, 0.0),
        classes=torch.where(
            share(0.6), 1, torch.randint(0, 16, shape, generator=generator)
        ).to(torch.uint8),
        undecided=share(0.05),
        ambiguous=share(0.2),
        output=fmt,
        overflow=overflow,
        store=store,
        flush=flush[0],
        flushed=flush[1],
        signed_zeros=signed_zeros,
    )
    noise = 1 + 8 * fmt.unit * (torch.rand(shape, generator=generator) - 0.5)
    value = torch.where(share(0.7), reference * noise, pick())
    if fmt.integral:
        y = value.nan_to_num(0.0, 0.0, 0.0).clamp(-120, 120).to(fmt.dtype)
    else:
        y = round_to(value, fmt).to(fmt.dtype)
    if not is_related:
        return y, acceptance, None
    mask = share(0.8)
    return y, replace(acceptance, relation=lambda outputs: {"y": mask}), mask
