"""bfloat16 and 8-bit floats: kfuzz's interpreter gives the bits that a GPU gives.

As a script, with TRITON_INTERPRET=1, it writes what the interpreter computes.
`pytest -s` shows the table.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from triton.compiler.errors import CompilationError

from kfuzz.execution.interpreter.watch import watch
from tests.helpers import low_precision_kernels as kernels
from tests.helpers.low_precision_data import (
    BF16,
    CHUNK,
    EIGHT_BITS,
    difficult,
    every,
    pairs,
)

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]
ROWS = 64 * 32
# How many elements a lane holds is the compiler's choice, and so is the order.
ANY_ORDER = ("sum_rows, random", "cumsum_rows, random")
# Triton 3.9 widens e5m2 to bfloat16 by its bits: infinity and NaN become numbers.
FAULTY_AT_SPECIALS = "copy float8_e5m2 -> bfloat16"


@dataclass(frozen=True)
class Computation:
    label: str
    kernel: Any
    out: torch.dtype
    x: Tensor
    y: Tensor
    z: Tensor
    chunk: int = CHUNK

    def run(self, device: str) -> Tensor:
        results = []
        for start in range(0, self.x.numel(), self.chunk):
            piece = slice(start, start + self.chunk)
            given = [t[piece].to(device) for t in (self.x, self.y, self.z)]
            size = given[0].numel()
            result = torch.zeros(size, dtype=self.out, device=device)
            self.kernel[(1,)](*given, result, N=size)
            results.append(result.cpu())
        return torch.cat(results)


def name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def computations() -> Iterator[Computation]:
    yield from casts()
    for dtype in (BF16, *EIGHT_BITS):
        x, y = pairs(dtype)
        for kernel in ("where", "absolute", "masked", "add_as_float32"):
            yield one(kernel, dtype, x, y)
    x, y = pairs(BF16)
    for kernel in (
        "add", "sub", "mul", "fma", "maximum", "minimum", "maximum_nan", "clamp",
        "negative", "times_scalar", "plus_tiny_scalar", "full",
    ):  # fmt: skip
        yield one(kernel, BF16, x, y)
    for kernel in ("less", "equal", "not_equal"):
        yield one(kernel, BF16, x, y, out=torch.bool)
    a, b = pairs(EIGHT_BITS[0])[0], pairs(EIGHT_BITS[1])[1]
    label = "add float8_e4m3fn + float8_e5m2"
    yield Computation(label, kernels.add, torch.float16, a, b, a)
    yield from rows()


def one(
    kernel: str, dtype: torch.dtype, x: Tensor, y: Tensor, *,
    out: torch.dtype | None = None, note: str = "", chunk: int = CHUNK,
) -> Computation:  # fmt: skip
    label = f"{kernel}{note} {name(dtype)}" + (f" -> {name(out)}" if out else "")
    function = getattr(kernels, kernel)
    z = x.view(torch.uint8 if x.itemsize == 1 else torch.int16).flip(0).view(dtype)
    return Computation(label, function, out or dtype, x, y, z, chunk)


def casts() -> Iterator[Computation]:
    wide = [torch.float32, torch.float16, BF16]
    routes = [(s, t) for s in (BF16, *EIGHT_BITS) for t in (*wide, *EIGHT_BITS)]
    sources = {torch.float32: difficult(torch.float32), torch.float16: halves()}
    routes += [(s, t) for s in sources for t in (BF16, *EIGHT_BITS)]
    for source, target in routes:
        narrowing_8_bits = source in EIGHT_BITS and target in EIGHT_BITS
        if source != target and not narrowing_8_bits:  # Triton compiles no such cast
            x = sources[source] if source in sources else every(source)
            yield cast("copy", x, target)
    yield cast("copy", difficult(torch.float64), BF16)
    for target in (BF16, torch.float16, torch.float8_e5m2):
        yield cast("copy_rtz", difficult(torch.float32), target)
    generator = torch.Generator().manual_seed(5)
    for dtype in (torch.int32, torch.int64):
        limit = torch.iinfo(dtype).max
        integers = torch.randint(-limit, limit, (CHUNK,), generator=generator)
        shift = torch.randint(0, 60, (CHUNK,), generator=generator) % dtype.itemsize * 8
        yield cast("copy", (integers >> shift).to(dtype), BF16)


def cast(kernel: str, x: Tensor, target: torch.dtype) -> Computation:
    label = f"{kernel} {name(x.dtype)} -> {name(target)}"
    return Computation(label, getattr(kernels, kernel), target, x, x, x)


def halves() -> Tensor:
    return torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(torch.float16)


def rows() -> Iterator[Computation]:
    """Reductions, scans, dot and atomics, on sums that every order gets right."""
    generator = torch.Generator().manual_seed(3)
    small = torch.randint(-4, 5, (ROWS,), generator=generator).float()
    random = torch.randn(ROWS, generator=generator)
    random[::37] = float("nan")
    finite = torch.randn(ROWS, generator=generator)
    ints = small.to(BF16)
    for kernel in ("sum_rows", "cumsum_rows"):
        yield one(kernel, BF16, ints, ints, note=", integers", chunk=ROWS)
        data = finite.to(BF16)
        yield one(kernel, BF16, data, data, note=", random", chunk=ROWS)
    for dtype in (BF16, *EIGHT_BITS):
        data = random.to(dtype)
        yield one("max_rows", dtype, data, data, chunk=ROWS)
        a = small.to(dtype)[:1024]
        yield one("dot", dtype, a, a, out=torch.float32, chunk=1024)
    data = random.to(BF16)
    yield one("reduce_rows", BF16, data, data, chunk=ROWS)
    data = finite.to(BF16)
    yield one("argmax_rows", BF16, data, data, out=torch.int32, chunk=ROWS)
    ones = torch.ones(256, dtype=BF16)
    yield one("atomic_add", BF16, ones, ones, chunk=256)


def bits(x: Tensor) -> Tensor:
    width = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return x.view(width[x.itemsize])


def is_nan(x: Tensor) -> Tensor:
    return x.float().isnan()


def test_the_interpreter_gives_the_bits_of_the_gpu(tmp_path: Path) -> None:
    file = tmp_path / "interpreted.pt"
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, __file__, str(file)], env=environment, check=True)
    interpreted = torch.load(file)
    wrong = []
    table = sys.stdout.write
    table(f"\n{'operation':<44} {'equal':>8} {'NaN bits':>8} {'unequal':>8}\n")
    for work in computations():
        try:
            expected, found = work.run("cuda"), interpreted[work.label]
        except CompilationError:
            # Not every release compiles every operation in every format.
            table(f"{work.label:<44} {'not compiled by this Triton':>26}\n")
            continue
        differs = bits(expected) != bits(found)
        nan = differs & is_nan(expected) & is_nan(found)
        unequal = differs & ~nan
        counts = [int(n.sum()) for n in (~differs, nan, unequal)]
        table(f"{work.label:<44} {counts[0]:>8} {counts[1]:>8} {counts[2]:>8}\n")
        if work.label == FAULTY_AT_SPECIALS:
            unequal &= work.x.float().isfinite()
        if unequal.any() and not work.label.startswith(ANY_ORDER):
            at = unequal.nonzero().flatten()[:3]
            sample = [(work.x[i].item(), work.y[i].item()) for i in at.tolist()]
            wrong.append((work.label, sample, expected[at], found[at]))
    assert wrong == []


def interpret(file: str) -> None:
    results = {}
    for work in computations():
        with watch() as seen:
            results[work.label] = work.run("cpu")
        assert seen.unreliable == "", (work.label, seen.unreliable)
    torch.save(results, file)


if __name__ == "__main__":
    interpret(sys.argv[1])
