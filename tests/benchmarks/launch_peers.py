"""One launch in Triton's interpreter: alone, under kfuzz's checks, under triton-viz's.

    TRITON_INTERPRET=1 python -m tests.benchmarks.launch_peers

Three kernels, whose programs each add 128 elements, take the softmax of a row of 256,
or make a 16 x 16 tile of a product. Processor time of a launch, the least of some.
Where triton-viz can be imported (3.0 needs Triton 3.7 or older), its sanitizer is
asked, too.
"""

import argparse
import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
import triton
import triton.language as tl

from kfuzz.execution.interpreter import vectorised
from kfuzz.execution.interpreter.memory import Reach
from kfuzz.execution.interpreter.watch import for_interpret, watch

GRIDS: Final = (1, 8, 64, 512)
ROUNDS: Final = 3
HEADS: Final = (
    "kernel", "programs", "plain, ms", "kfuzz one by one, ms", "kfuzz, ms",
    "triton-viz, ms",
)  # fmt: skip


@triton.jit
def add(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    total = tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask)
    tl.store(z + at, total, mask=mask)


@triton.jit
def softmax(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * n
    value = tl.load(x + row + at, mask=at < n, other=-float("inf"))
    value = tl.exp(value - tl.max(value, 0))
    tl.store(z + row + at, value / tl.sum(value, 0), mask=at < n)


@triton.jit
def product(x, y, z, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    columns = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, n, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        a = tl.load(x + rows * n + inner[None, :])
        b = tl.load(y + inner[:, None] * BLOCK + columns[None, :])
        total = tl.dot(a, b, total)
    tl.store(z + rows * BLOCK + columns[None, :], total)


KERNELS: Final = {add: (128, 1), softmax: (256, 1), product: (16, 64)}
"""The block of each, and how many elements each of its elements takes."""


def least(call: Callable[[], object]) -> str:
    """Return the least processor time of some calls, in ms."""
    spent = []
    for _ in range(ROUNDS + 1):
        began = time.process_time()
        call()
        spent.append(time.process_time() - began)
    return f"{1e3 * min(spent[1:]):.2f}"


def watched(call: Callable[[], object], programs: int) -> Callable[[], None]:
    """Return a call under kfuzz's checks, with programs at once from so many on."""

    def checked() -> None:
        vectorised.LEAST_PROGRAMS = programs  # type: ignore[misc]
        with watch(Reach({}, {}, None)) as seen:
            call()
        assert seen.at_once == (seen.programs >= programs), seen.alone
        assert not seen.accesses

    return checked


def arguments_of(kernel: Any, programs: int) -> tuple[Any, ...]:
    """Return the grid, the tensors, their size, and the block of a launch."""
    block, inner = KERNELS[kernel]
    x = torch.randn(programs * block * inner)
    y = torch.randn(max(x.numel(), inner * block))
    n = {add: x.numel(), softmax: block, product: inner}[kernel]
    return (programs,), x, y, torch.empty_like(x), n, block


def launch(grid: Any, x: Any, y: Any, z: Any, n: int, block: int, kernel: Any) -> None:
    """Launch a kernel."""
    kernel[grid](x, y, z, n, BLOCK=block)


def main() -> int:
    """Measure and print."""
    description = (__doc__ or "").partition("\n")[0]
    argparse.ArgumentParser(description=description).parse_args()
    for_interpret()
    least_programs = vectorised.LEAST_PROGRAMS
    rows, calls = [], []
    for kernel, programs in itertools.product(KERNELS, GRIDS):
        call = partial(launch, *arguments_of(kernel, programs))
        times = [least(partial(call, kernel))]
        for from_on in (1 << 40, least_programs):
            times.append(least(watched(partial(call, kernel), from_on)))
        rows.append([kernel.fn.__name__, str(programs), *times])
        calls.append((kernel, call))
    try:  # at last: it changes the interpreter
        import triton_viz
    except (ImportError, AttributeError):  # the latter of a Triton that is too new
        calls.clear()
    for row, (kernel, call) in zip(rows, calls, strict=False):
        row.append(least(partial(call, triton_viz.trace("sanitizer")(kernel))))
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
