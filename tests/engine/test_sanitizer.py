"""compute-sanitizer: what its reports say, and `kfuzz replay --sanitizer`."""

import os
import stat
import sys
from pathlib import Path

import pytest
import torch

from kfuzz.app import main
from kfuzz.core.codec import encode
from kfuzz.core.errors import BackendError
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.evaluation import sanitized
from kfuzz.execution.device import sanitizer
from kfuzz.execution.device.backends import CPU
from kfuzz.store import files as strict_json
from kfuzz.store.corpus import Corpus

MEMCHECK = """\
========= COMPUTE-SANITIZER
something that the program printed
========= Invalid __global__ read of size 4 bytes
=========     at scale(float *, int)+0x150 in /tmp/scale.cu:7
=========     by thread (31,0,0) in block (2,0,0)
=========     Address 0x7f10c2e00180 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f10c2e00000 of size 384
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: cuLaunchKernel [0x3342]
=========                in /usr/lib/libcuda.so.1
=========
========= Invalid __global__ read of size 4 bytes
=========     at scale(float *, int)+0x150 in /tmp/scale.cu:7
=========     by thread (32,0,0) in block (2,0,0)
=========     Address 0x7f10c2e00184 is out of bounds
=========
========= ERROR SUMMARY: 2 errors
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at swap(int *)+0x90 in /tmp/s.cu:8
=========     and Read access at swap(int *)+0x120 in /tmp/s.cu:10 [96 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


def test_a_race_is_told_with_both_accesses() -> None:
    report = sanitizer.parse("racecheck", RACECHECK)
    assert (report.count, report.warnings) == (1, 0)
    [error] = report.errors
    assert "Write access at swap(int *) in /tmp/s.cu:8" in error.what
    assert error.details == ("and Read access at swap(int *)+0x120 in /tmp/s.cu:10 "
                             "[96 hazards]",)  # fmt: skip


@pytest.mark.parametrize(
    ("strides", "offset"),
    [(None, 0), (None, 3), ((1, 4), 0), ((0, 1), 2), ((12, 2), 1)],
)
def test_an_argument_ends_with_its_allocation(
    strides: tuple[int, ...] | None, offset: int
) -> None:
    fill = Fill("randn", 3)
    spec = TensorSpec((4, 3), ("d0", "d1"), "float32", strides, offset, fill=fill)
    values = sanitized.logical_values(Case({"x": spec}), "x", torch.device("cpu"))
    made = sanitized.placed(spec, values, torch.device("cpu"))
    assert torch.equal(made, values)
    assert made.stride() == spec.element_strides
    assert made.untyped_storage().nbytes() == 4 * (spec.offset + spec.span)


KERNELS = """
import torch
from kfuzz.contracts import kernel, operators as ops

@kernel(ops.relu)
def rounds(x):
    assert x.untyped_storage().nbytes() == 4 * x.numel()
    return torch.relu(x)

@kernel(ops.relu, out=("y",))
def into(x, y):
    y.copy_(torch.relu(x))
    raise ValueError("all done")
"""


def test_the_program_calls_the_kernel(tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(KERNELS)
    spec = TensorSpec((4, 3), ("d0", "d1"), "float32", fill=Fill("randn", 3))
    case = Case({"x": spec})
    request = {
        "cwd": os.getcwd(), "root": str(tmp_path), "file": str(file), "module": "",
        "name": "rounds", "device": "cpu", "case": encode(case),
    }  # fmt: skip
    assert sanitized.run(request) == {}
    assert "no kernel" in sanitized.run({**request, "name": "gone"})["problem"]


FAKE = """#!{python}
import pathlib, subprocess, sys
tool = sys.argv[sys.argv.index("--tool") + 1]
log = pathlib.Path(sys.argv[sys.argv.index("--log-file") + 1])
assert "-m" in sys.argv
program = sys.argv[sys.argv.index("-m") - 1:]
{body}
"""


def fake(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a compute-sanitizer on PATH that runs a few lines of Python."""
    folder.mkdir()
    path = folder / "compute-sanitizer"
    path.write_text(FAKE.format(python=sys.executable, body=body))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


@pytest.fixture
def finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> str:
    """Store a finding of the CPU, and say that there is a CUDA device."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "kernels.py").write_text(
        "import torch\n"
        "from kfuzz.contracts import kernel, operators as ops\n\n"
        "@kernel(ops.relu)\ndef off(x):\n    return torch.relu(x) + 1\n"
    )
    (project / "pyproject.toml").write_text("[tool.kfuzz]\n")
    monkeypatch.chdir(project)
    command = ["run", "kernels.py", "--device", "cpu", "--format", "json"]
    assert main([*command, "--max-cases", "5", "--seed", "1"]) == 1
    document = strict_json.loads(capfd.readouterr().out)
    monkeypatch.setattr("kfuzz.engine.replay.resolve", lambda d: (CPU, ("cpu",)))
    found: str = document["kernels"][0]["findings"][0]["id"]
    return found


@pytest.mark.slow
def test_the_report_is_stored_with_the_finding(
    finding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    # The kernel really runs: its program is started with the caching turned off.
    body = f"""
import os
assert os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1"
subprocess.run(program, check=True)
log.write_text({MEMCHECK!r})
"""
    fake(tmp_path / "bin", body, monkeypatch)
    command = ["replay", finding, "--sanitizer", "memcheck", "--device", "cuda"]
    assert main(command) == 1
    out = capfd.readouterr().out
    assert "memcheck: 2 errors" in out
    assert "Invalid __global__ read of size 4 bytes" in out
    assert "1 bytes after the nearest allocation" in out
    [stored] = Path("corpus").rglob("sanitizer-memcheck.txt")
    assert "ERROR SUMMARY: 2 errors" in stored.read_text()
    assert main(["corpus", "check"]) == 0
    assert main(["show", finding]) == 0
    # A later form of the finding keeps it.
    store = Corpus(Path("corpus"))
    store.save(store.find(finding).finding)
    assert stored.exists()
    assert main([*command, "--format", "json"]) == 1
    out = capfd.readouterr().out
    document = strict_json.loads(out[out.index("{\n") :] if "{\n" in out else out)
    [result] = document["results"]
    assert result["errors"] == 2
    assert result["printed"][0]["times"] == 2
    assert result["raised"] is None


@pytest.mark.slow
def test_without_the_tool_or_a_gpu_nothing_runs(
    finding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert main(["replay", finding, "--sanitizer", "memcheck"]) == 2
    assert "--device cuda" in capfd.readouterr().err
    assert main(["replay", finding, "--sanitizer", "memchek"]) == 2
    assert "memcheck" in capfd.readouterr().err
    both = ["--sanitizer", "memcheck", "--script", "out.py"]
    assert main(["replay", finding, *both]) == 2
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setattr(sanitizer, "_USUAL", str(tmp_path / "nowhere"))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    with pytest.raises(BackendError, match="compute-sanitizer"):
        sanitizer.find()
    command = ["replay", finding, "--sanitizer", "memcheck", "--device", "cuda"]
    assert main(command) == 5
    assert "compute-sanitizer" in capfd.readouterr().err
