"""Files written as released libraries are, which ask for a GPU as they are imported."""

from pathlib import Path

import pytest
import torch

from kfuzz.execution.device.simulated import GPU
from kfuzz.targets.load import load_all
from tests.e2e.project import Project

FILE = """
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

import kfuzz
from kfuzz.contracts import operators as ops

DEVICE = triton.runtime.driver.active.get_active_torch_device()
PROCESSORS = torch.cuda.get_device_properties(DEVICE).multi_processor_count
TABLE = torch.ones(1, device=DEVICE)
tanh = libdevice.tanh


@triton.jit
def over_rows(x, y, n, m, gain, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), n, tl.num_programs(0)):
        here = row.to(tl.int64) * m + at
        value = tl.load(x + here, mask=(at < m) & (row < n)).to(tl.float32)
        made = tanh(value) * gain.to(tl.float32)
        tl.store(y + here, made, mask=(at < m) & (row < n))


def launch(x, gain):
    if not torch.cuda.is_available() or x.device.type != "cuda":
        return torch.tanh(x)  # right, and no kernel
    assert x.device == DEVICE and x.is_cuda
    x = x.contiguous()
    m = x.shape[-1] if x.ndim else 1
    n = x.numel() // max(m, 1)
    with torch.cuda.device(x.device.index):
        y = torch.empty(x.shape, dtype=x.dtype, device=DEVICE)
        if n:
            block = triton.next_power_of_2(m)
            over_rows[[min(n, PROCESSORS)]](x, y, n, m, gain, BLOCK=block)
    return y * TABLE.to(y.dtype)


@kfuzz.kernel(ops.tanh)
def right(x):
    return launch(x, 1.0)


@kfuzz.kernel(ops.tanh)
def wrong(x):
    return launch(x, 1.25)
"""


@pytest.mark.slow
def test_their_kernels_are_run_and_judged(project: Project) -> None:
    project.write("library.py", FILE)
    words = ("--device", "interpret", "--contracts", "K-VAL-01", "--max-findings", "1")
    run = project.run("library.py::right", *words, cases=12)
    assert run.code == 0, run.err
    (kernel,) = run.document["kernels"]
    assert kernel["contracts"]["K-VAL-01"]["verdict"] == "conforms"
    run = project.run("library.py::wrong", *words, cases=12)
    assert run.code == 1, run.err
    (found,) = project.findings()
    assert "declared_gpu=" in str(found["fingerprint"])


@pytest.mark.slow
def test_several_of_them_are_imported_and_so_is_one_in_one_process(
    project: Project,
) -> None:
    project.write("first.py", FILE)
    project.write("second.py", FILE)
    words = ("--device", "interpret", "--contracts", "K-VAL-01")
    run = project.run("first.py::right", "second.py::right", *words, cases=3)
    assert run.code == 0, run.err
    assert len(run.document["kernels"]) == 2
    run = project.run("first.py::wrong", *words, "--isolate", "none", cases=3)
    assert run.code == 1, run.err


ASKING = """
import {}
from kfuzz.contracts import operators as ops

NAME = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"


@kfuzz.kernel(ops.relu)
def named(x):
    return NAME
"""


def test_whoever_imports_such_a_file_has_it_find_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    names = []
    for imports in ("torch, kfuzz, triton", "torch, kfuzz"):
        path = tmp_path / f"file{len(names)}.py"
        path.write_text(ASKING.format(imports))
        (loaded,) = load_all((str(path),), root=tmp_path)
        names.append(loaded.kernel(torch.ones(1)))
    here = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    assert names == [GPU["name"], here]


GRADIENTS = """
import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz import strategies as ks


@kfuzz.reference(inputs=dict(x=ks.tensors("N"), w=ks.tensors("N")))
def scaled_square(x, w):
    return x * x * w


@triton.jit
def forward_body(x, w, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n).to(tl.float32)
    b = tl.load(w + at, mask=at < n).to(tl.float32)
    tl.store(y + at, a * a * b, mask=at < n)


@triton.jit
def backward_body(g, x, w, dx, dw, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    slope = tl.load(g + at, mask=at < n).to(tl.float32)
    a = tl.load(x + at, mask=at < n).to(tl.float32)
    b = tl.load(w + at, mask=at < n).to(tl.float32)
    tl.store(dx + at, slope * factor * a * b, mask=at < n)
    tl.store(dw + at, slope * a * a, mask=at < n)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, factor):
        assert x.is_cuda
        a, b = x.contiguous(), w.contiguous()
        ctx.save_for_backward(a, b)
        ctx.factor = factor
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        n = x.numel()
        if n:
            forward_body[(triton.cdiv(n, 64),)](a, b, y, n, BLOCK=64)
        return y

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        dx, dw, n = torch.empty_like(x), torch.empty_like(w), x.numel()
        assert g.is_cuda and dx.device == x.device
        if n:
            backward_body[(triton.cdiv(n, 64),)](
                g.contiguous(), x, w, dx, dw, n, ctx.factor, BLOCK=64
            )
        return dx, dw, None


@kfuzz.kernel(scaled_square, gradients=True)
def right(x, w):
    return Square.apply(x, w, 2.0)


@kfuzz.kernel(scaled_square, gradients=True)
def half(x, w):
    return Square.apply(x, w, 1.0)
"""


@pytest.mark.slow
def test_gradients_of_an_operator_of_ones_own_meet_the_gpu(project: Project) -> None:
    project.write("library.py", GRADIENTS)
    words = ("--device", "interpret", "--max-findings", "1")
    run = project.run("library.py::right", *words, cases=8)
    assert run.code == 0, run.err
    gradients = {k["kernel"]: k["contracts"] for k in run.document["kernels"]}
    judged = gradients["library.py::right.backward"]["K-GRD-01"]
    assert judged["verdict"] == "conforms"
    run = project.run("library.py::half.backward", *words, cases=8)
    assert run.code == 1, run.err
    (found,) = project.findings()
    assert found["signature"]["contract"] == "K-GRD-01"
