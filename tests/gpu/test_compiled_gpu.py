"""torch.compile, operators of libraries and modules on a GPU."""

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor, nn

import kfuzz
from kfuzz.contracts import operators as ops
from kfuzz.core.verdict import Kind
from kfuzz.evaluation.probes import building as opchecking
from tests.contracts.test_attribution import layer_norm_case
from tests.e2e.project import Project
from tests.helpers import judged_cases
from tests.helpers.judged_cases import right, x_case

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
SOURCES = Path(__file__).parent / "targets"
judged = partial(judged_cases.judged, backend="cuda")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = tmp_path / "project"
    shutil.copytree(SOURCES, folder)
    return Project(folder, {"KFUZZ_CACHE": str(tmp_path / "cache")})


@pytest.fixture
def in_child(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have opcheck run here, as it does in a child."""
    monkeypatch.setattr(opchecking, "is_child", lambda: True)
    return


def test_what_inductor_compiles_is_clean(project: Project) -> None:
    target = ("chains.py::inductor", "--device", "cuda", "--max-time", "60s")
    run = project.run(*target, cases=12)
    assert run.code == 0, (run.err, run.document)
    kernel = run.kernel("inductor")
    assert kernel["contracts"]["C-CMP-01"]["decided"] >= 3, kernel
    ours = str(project.folder.parent / "cache" / "inductor")
    kept = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR", ours))
    assert kept.is_dir(), (kept, list(project.folder.parent.rglob("*inductor*")))


def test_a_wrong_fusion_is_found_reduced_and_replayed(project: Project) -> None:
    target = ("chains.py::fused_wrong", "--device", "cuda", "--max-findings", "1")
    run = project.run(*target, cases=12)
    assert run.code == 1, (run.err, run.document)
    [found] = run.findings("fused_wrong")
    assert (found["contract"], found["state"]) == ("C-CMP-01", "confirmed"), found
    assert found["input_elements"] == 2, found
    replayed = project.kfuzz("replay", found["id"])
    assert replayed.returncode == 1, replayed.stdout + replayed.stderr


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < n)
    tl.store(y_ptr + place, tl.where(x < 0, 0.0, x), mask=place < n)


def launched(x: Tensor) -> Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        relu_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y


@torch.library.custom_op("kfuzz_test_gpu::relu", mutates_args=())
def relu(x: Tensor) -> Tensor:
    return launched(x)


@relu.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("kfuzz_test_gpu::relu_into", mutates_args=("y",))
def relu_into(x: Tensor, y: Tensor) -> None:
    y.copy_(launched(x))


@torch.library.custom_op("kfuzz_test_gpu::misfaked", mutates_args=())
def misfaked(x: Tensor) -> Tensor:
    return launched(x)


@misfaked.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x, dtype=torch.float64)


@pytest.mark.usefixtures("in_child")
def test_operators_of_a_library_are_judged_and_asked_about_themselves() -> None:
    case = x_case("randn", (4, 33))
    right(judged(ops.relu, relu, case, dtypes="float32"))
    right(judged(ops.relu, relu_into, case, dtypes="float32", out=("y",)))
    failure = judged(ops.relu, misfaked, case, dtypes="float32").failure
    assert failure is not None
    assert (failure.contract, failure.kind) == ("K-MET-01", Kind.FALSE_FAKE), failure


def test_a_module_computes_with_the_parameters_that_are_drawn() -> None:
    made = kfuzz.module(
        lambda N, eps: nn.LayerNorm(N, eps),
        parameters={"weight": "weight", "bias": "bias"},
    )
    right(judged(ops.layer_norm, made, layer_norm_case("randn", (4, 33))))
