"""A race planted behind any kernel: two programs store to one element."""

from dataclasses import replace
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts.witnesses.planted.base import Base, Fault, spoilt

# Programs of a launch where there is enough to copy.
PROGRAMS: Final = 8
_WORDS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@triton.jit(do_not_specialize=["numel"])
def copy_kernel(x_ptr, y_ptr, numel, RACE: tl.constexpr, BLOCK: tl.constexpr):
    """Copy words in blocks; with RACE the first program stores the last one too."""
    lanes = tl.arange(0, BLOCK)
    offs = tl.program_id(0).to(tl.int64) * BLOCK + lanes
    if RACE:
        mine = offs == 0
        ends = lanes.to(tl.int64) * 0 + (numel - 1)
        stale = tl.load(x_ptr + ends, mask=mine, other=0)
        tl.store(y_ptr + ends, stale ^ 1, mask=mine)
    x = tl.load(x_ptr + offs, mask=offs < numel)
    tl.store(y_ptr + offs, x, mask=offs < numel)


def copied(y: Tensor, *, race: bool) -> Tensor:
    """Return a copy of y, made by several programs where it has several elements.

    In a race the first one stores another last element, which the last one mends.
    """
    words = y.contiguous().view(_WORDS[y.element_size()])
    made = torch.empty(words.shape, dtype=words.dtype, device=y.device)
    if n := words.numel():
        block = triton.next_power_of_2(triton.cdiv(n, PROGRAMS))
        programs = triton.cdiv(n, block)
        raced = race and programs > 1
        copy_kernel[(programs,)](words, made, n, RACE=raced, BLOCK=block)
    return made.view(y.dtype)


def through(base: Base, *, race: bool) -> Base:
    """Return the kernel with its first result copied by programs of its own."""

    def change(_: tuple[Tensor, ...], outputs: list[Tensor]) -> list[Tensor]:
        return [copied(outputs[0], race=race), *outputs[1:]]

    return replace(spoilt(base, change), backends=("interpret",))


FAULTS: Final = (
    Fault(
        "racing", "C-ORD-02",
        "stores another last element by a program that is not its own",
        lambda base: through(base, race=True),
        devices=("cpu",),
    ),
)  # fmt: skip
