"""CUDA C++ and bare Triton kernels on a GPU: built, launched, falsified, replayed."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import triton
from torch import Tensor

import kfuzz
from kfuzz.contracts import operators as ops
from kfuzz.core.errors import BuildError
from kfuzz.targets.cuda_source import LaunchError
from tests.e2e.project import Project
from tests.helpers import judged_cases
from tests.helpers.judged_cases import right, row_case, x_case
from tests.targets.test_targets import OUT, relu_kernel, softmax_kernel

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
SOURCES = Path(__file__).parent / "targets"
judged = partial(judged_cases.judged, backend="cuda")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KFUZZ_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def project(tmp_path: Path, cache: Path) -> Project:
    """A project with the sources of a softmax in CUDA C++, and an empty cache."""
    folder = tmp_path / "project"
    shutil.copytree(SOURCES, folder)
    return Project(folder, {"KFUZZ_CACHE": str(cache)})


def on_gpu(project: Project, name: str, *more: str) -> Any:
    target = f"softmax_cu.py::{name}"
    run = project.run(target, "--device", "cuda", *more, cases=150)
    return run


def builds(cache: Path) -> dict[Path, int]:
    return {p: p.stat().st_mtime_ns for p in cache.rglob("*.bin")}


def test_a_cuda_source_with_a_fault_is_found_reduced_and_replayed(
    project: Project, cache: Path
) -> None:
    run = on_gpu(project, "cuda_softmax_tail", "--max-findings", "1")
    assert run.code == 1, run.err
    [found] = run.findings("cuda_softmax_tail")
    assert (found["contract"], found["state"]) == ("C-CMP-03", "confirmed"), found
    assert found["input_elements"] <= 8, found
    kept = builds(cache)
    assert len(kept) == 1, kept  # both kernels, in every child, from one build
    replayed = project.kfuzz("replay", found["id"])
    assert replayed.returncode == 1, replayed.stdout + replayed.stderr
    assert "FAILS" in replayed.stdout
    project.kfuzz("replay", found["id"], "--script", "repro.py")
    script = project.python("repro.py")
    assert script.returncode == 1, script.stdout + script.stderr
    assert "FAILS" in script.stdout
    assert builds(cache) == kept
    source = project.folder / "softmax.cu"
    source.write_text(source.read_text().replace("n < 4 ? n : n / 4 * 4", "n"))
    mended = project.kfuzz("replay", found["id"])
    assert mended.returncode == 0, mended.stdout + mended.stderr
    assert "FIXED" in mended.stdout
    assert len(builds(cache)) == 2


def test_its_correct_twin_is_clean(project: Project) -> None:
    run = on_gpu(project, "cuda_softmax")
    assert run.code == 0, (run.err, run.document)
    assert run.kernel("cuda_softmax")["contracts"]["K-VAL-01"]["decided"] >= 60


def test_a_failed_build_is_an_error_with_the_compilers_words(project: Project) -> None:
    source = project.folder / "softmax.cu"
    text = source.read_text().replace("float total = 0.0f;", "float total = nothing;")
    source.write_text(text)
    line = 1 + text.splitlines().index("  float total = nothing;")
    run = on_gpu(project, "cuda_softmax")
    assert run.code == 3, run.err
    kernel = run.kernel("cuda_softmax")
    assert kernel["findings"] == []
    assert kernel["contracts"]["K-VAL-01"]["verdict"] == "error"
    told = " ".join(notice["message"] for notice in run.document["notices"])
    assert f"softmax.cu:{line}" in told, told
    assert "nothing" in told
    assert "undefined" in told


def test_templates_and_numbers_reach_the_device(cache: Path) -> None:
    source = kfuzz.cuda_source("targets/softmax.cu", options=("-std=c++17",))
    for dtype, name, scalar in (
        (torch.float32, "scaled<float>", np.float32),
        (torch.float64, "scaled<double>", np.float64),
    ):
        x = torch.arange(1000, dtype=dtype, device="cuda")
        y = torch.empty_like(x)
        kernel = source.kernel(name)
        kernel[(4, 1, 1), 256](x, y, np.int64(1000), scalar(0.1))
        assert torch.equal(y, x * torch.tensor(0.1, dtype=dtype, device="cuda"))
        with pytest.raises(TypeError, match=r"np\.int32"):
            kernel[4, 256](x, y, 1000, 0.1)


def test_launches_go_to_the_stream_that_is_given(cache: Path) -> None:
    kernel = kfuzz.cuda_source(
        'extern "C" __global__ void add(float *y, double d, bool b, short s) {\n'
        "  y[threadIdx.x] += (float)d + b + s;\n}\n"
    ).kernel("add")
    y, stream = torch.zeros(4, device="cuda"), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        kernel[1, 4](y, 0.5, True, -3)
    kernel[1, 4, 0, stream](y, 0.25, False, 1)
    stream.synchronize()
    assert y.tolist() == [-0.25] * 4
    with pytest.raises(LaunchError, match="INVALID"):
        kernel[0, 4](y, 0.5, True, -3)


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc on the path")
def test_nvcc_builds_what_nvrtc_has_no_headers_for(cache: Path) -> None:
    text = "#include <cstdio>\n" + (
        "template <int N> __global__ void add(float *y) { y[0] += N; }\n"
    )
    y = torch.zeros(1, device="cuda")
    kfuzz.cuda_source(text).kernel("add<3>")[1, 1](y)
    kfuzz.cuda_source(text, compiler="nvcc").kernel("add<4>")[1, 1](y)
    assert y.item() == 7
    with pytest.raises(BuildError, match=r"source\.cu:1"):
        kfuzz.cuda_source(text.replace("<cstdio>", "<nowhere.h>")).kernel("add<3>")[
            1, 1
        ](y)


@pytest.mark.parametrize("shape", [(4, 33), (3, 0), (0, 5)])
def test_a_bare_kernel_is_launched_by_its_recipe(shape: tuple[int, int]) -> None:
    def arguments(x: Tensor, y: Tensor) -> tuple[Any, ...]:
        return x, y, x.shape[-1], x.shape[-1]

    made = kfuzz.launch(
        softmax_kernel,
        grid=lambda x: (x.numel() // max(x.shape[-1], 1),),
        args=arguments,
        BLOCK=64,
        num_warps=2,
    )
    right(judged(ops.softmax, made, row_case("randn", shape), dims={-1}, **OUT))


def test_an_autotuned_kernel_is_launched_with_its_meta() -> None:
    made = kfuzz.launch(
        relu_kernel,
        grid=lambda x, meta: (triton.cdiv(x.numel(), meta["BLOCK"]),),
        args=lambda x, y: {"x_ptr": x, "y_ptr": y, "n": x.numel()},
    )
    for shape in ((4, 8), (16, 16), (3, 111)):
        right(judged(ops.relu, made, x_case("randn", shape), **OUT))
