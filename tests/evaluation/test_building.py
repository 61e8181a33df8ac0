"""K-BLD-01: what a kernel launches, compiled for GPUs that are not here."""

from pathlib import Path

import pytest

from kfuzz.contracts.evidence import Builds
from kfuzz.core.recipe import Case, TensorSpec, contiguous_strides
from kfuzz.evaluation.building import Builder
from kfuzz.execution.launches.gpu_targets import GPU_TARGETS

# Three stages of two tiles of 64 x 64 floats are 96 KiB of shared memory.
TILED = """
import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz.contracts import operators as ops


@triton.jit
def product(a, b, c, M, N, K, am, ak, bk, bn, cm, cn, B: tl.constexpr):
    m = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)[:, None]
    n = tl.program_id(1).to(tl.int64) * B + tl.arange(0, B)[None, :]
    total = tl.zeros((B, B), tl.float32)
    for first in range(0, K, B):
        k = first + tl.arange(0, B).to(tl.int64)
        x = tl.load(a + m * am + k[None, :] * ak, (m < M) & (k[None, :] < K), 0.0)
        y = tl.load(b + k[:, None] * bk + n * bn, (k[:, None] < K) & (n < N), 0.0)
        total = tl.dot(x, y, total, input_precision="ieee")
    tl.store(c + m * cm + n * cn, total.to(c.dtype.element_ty), (m < M) & (n < N))


def of_tiles(a, b, tile, stages):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty(M, N, dtype=a.dtype, device=a.device)
    grid = triton.cdiv(M, tile), triton.cdiv(N, tile)
    product[grid](
        a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), tile,
        num_stages=stages,
    )
    return c


@kfuzz.kernel(ops.matmul, dtypes="float32", offsets="int32")
def large_tiles(a, b):
    return of_tiles(a, b, 64, 4)


@kfuzz.kernel(ops.matmul, dtypes="float32", offsets="int32")
def small_tiles(a, b):
    return of_tiles(a, b, 16, 2)


@kfuzz.kernel(ops.matmul, dtypes="float32")
def no_triton(a, b):
    return a @ b
"""


def case(*targets: str) -> Case:
    tensors = {
        name: TensorSpec(shape, axes, "float32", contiguous_strides(shape))
        for name, shape, axes in (
            ("a", (70, 33), ("M", "K")), ("b", (33, 20), ("K", "N")),
        )
    }  # fmt: skip
    return Case(tensors, targets=targets)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("builds") / "kernels.py"
    made.write_text(TILED)
    return made


def built(file: Path, name: str, *targets: str) -> Builds:
    opened = {
        "cwd": str(file.parent), "root": str(file.parent), "file": str(file),
        "module": "", "name": name,
    }  # fmt: skip
    builder = Builder(opened)
    try:
        return builder(case(*targets), lambda: None)
    finally:
        assert builder._process is not None
        builder._process.close()


@pytest.mark.slow
def test_a_kernel_is_beyond_the_memory_of_one_gpu_and_not_of_another(
    file: Path,
) -> None:
    made = built(file, "large_tiles", "sm_90", "gfx942", "gfx950")
    assert (made.reason, made.built) == ("", 3)
    [mismatch] = made.mismatches
    assert (mismatch.target, mismatch.kernel, mismatch.file) == (
        "gfx942", "product", "kernels.py",
    )  # fmt: skip
    assert "98304 bytes of shared memory, 65536 are the most" in mismatch.why
    assert "num_stages=4" in mismatch.given


@pytest.mark.slow
def test_smaller_tiles_build_for_every_gpu(file: Path) -> None:
    made = built(file, "small_tiles", *GPU_TARGETS)
    assert (made.reason, made.mismatches) == ("", ())
    assert made.built == len(GPU_TARGETS)


@pytest.mark.slow
def test_without_a_launch_nothing_is_decided(file: Path) -> None:
    made = built(file, "no_triton", "gfx942")
    assert (made.built, made.mismatches) == (0, ())
    assert made.reason == "it launches no Triton kernel"
