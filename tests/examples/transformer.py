"""A small transformer in training, whose softmax is wrong in one batch of a thousand.

    TRITON_INTERPRET=1 python tests/examples/transformer.py --steps 1000
    python tests/examples/transformer.py --device cuda --steps 3000 --size large

The row kernel limits its arguments instead of subtracting their maximum: nothing
overflows, ordinary scores give the right answer, and a batch with one sequence far
louder than others trains on wrong attention without a NaN. The monitor finds that
batch, stores the scores as a finding in corpus/, and `kfuzz shrink ID` and
`kfuzz replay ID` work on it.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

import kfuzz


@triton.jit
def _softmax_rows(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    there = column < n
    x = tl.load(x_ptr + row * n + column, mask=there, other=float("-inf"))
    e = tl.exp(tl.minimum(x, 60.0))  # the fault
    tl.store(y_ptr + row * n + column, e / tl.sum(e, 0), mask=there)


def launched(x: Tensor) -> Tensor:
    """Softmax along the last dimension, as one Triton kernel."""
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.shape[-1]
    if x.numel():
        _softmax_rows[(x.numel() // n,)](x, y, n, BLOCK=triton.next_power_of_2(n))
    return y


class Louder:
    """Flags calls whose greatest score is far above that of the calls before."""

    usual = 0.0

    def __call__(self, tensors: Sequence[Tensor]) -> bool:
        """Whether a call is to be checked."""
        top = float(tensors[0].abs().max()) if tensors else 0.0
        is_louder = 0 < 4 * self.usual < top
        self.usual = top if not self.usual else 0.99 * self.usual + 0.01 * top
        return is_louder


# One call of a hundred by chance, and what lies far from the calls before.
@kfuzz.monitor(
    "softmax", rate=0.01, corpus="corpus", detectors=[Louder()],
    dtypes=("float32",), layouts="contiguous", nonfinite="undefined",
)  # fmt: skip
def row_softmax(x: Tensor) -> Tensor:
    """Softmax along the last dimension."""
    return launched(x)


class Attend(torch.autograd.Function):
    """The softmax of attention, with its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, softmax: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the softmax."""
        y = softmax(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the scores."""
        (y,) = ctx.saved_tensors
        return y * (grad - (grad * y).sum(-1, keepdim=True)), None


class Block(nn.Module):
    """Attention of one head and a small network."""

    def __init__(self, width: int, softmax: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.softmax = softmax
        self.qkv = nn.Linear(width, 3 * width)
        self.rest = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return x with what it attends to."""
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        x = x + Attend.apply(scores, self.softmax) @ v
        return x + self.rest(x)


SIZES = {"small": (1, 4, 16, 1), "large": (16, 512, 512, 4)}
"""Batch, length, width and blocks."""


def batches(size: str, device: str, *, every: int) -> Callable[[int], Tensor]:
    """Return what makes the batch of a step; one in `every` has a loud sequence."""
    count, length, width, _ = SIZES[size]
    draw = torch.Generator(device).manual_seed(0)

    def batch(step: int) -> Tensor:
        x = torch.randn(count, length, width, device=device, generator=draw)
        if step % every == every - 1:
            x[0] *= 40.0
        return x

    return batch


def train(
    steps: int,
    *,
    size: str = "small",
    device: str = "cpu",
    every: int = 1000,
    softmax: Callable[[Tensor], Tensor] = row_softmax,
) -> list[float]:
    """Learn to tell a sequence's mean; returns the seconds of each step."""
    torch.manual_seed(0)
    width, blocks = SIZES[size][2:]
    layers = [Block(width, softmax) for _ in range(blocks)]
    model = nn.Sequential(*layers, nn.Linear(width, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    batch = batches(size, device, every=every)
    taken = []
    for step in range(steps):
        begin = time.perf_counter()
        x = batch(step)
        wanted = x.mean(dim=(1, 2))
        loss = (model(x).mean(dim=(1, 2)) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        taken.append(time.perf_counter() - begin)
    return taken


def main() -> None:
    """Train, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--every", type=int, default=1000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", choices=SIZES, default="small")
    given = parser.parse_args()
    train(given.steps, size=given.size, device=given.device, every=given.every)
    kfuzz.monitor.flush()
    sys.stdout.write(f"{row_softmax.monitor.statistics()}\n")


if __name__ == "__main__":
    main()
