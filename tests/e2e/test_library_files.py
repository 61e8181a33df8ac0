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
