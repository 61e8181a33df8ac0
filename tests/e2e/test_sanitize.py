"""`kfuzz sanitize`, from the command line."""

import json
import xml.etree.ElementTree as ET
from textwrap import dedent

import pytest

from tests.e2e.project import Project

pytest.importorskip("kfuzz.features")

KERNELS = """
import torch
import triton
import triton.language as tl


@triton.jit
def _add(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + i, mask=i < n)
    b = tl.load(y + i)
    tl.store(o + i, a + b, mask=i < n)


@triton.jit
def _double(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def _assembly(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.inline_asm_elementwise(
        "bar.sync $0;", "=r,r", [tl.load(x + i)], tl.int32, is_pure=False, pack=1
    )
    tl.store(o + i, v)


@triton.jit
def _padded(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.where(i < n, tl.load(x + i), 0.0))


def padded(n):
    x = torch.empty(64, device="cuda")
    x[:50] = 1.0
    o = torch.empty(64, device="cuda")
    _padded[(1,)](x, o, n, B=64)
    return o


def add(x, y):
    o = torch.empty_like(x)
    _add[(triton.cdiv(x.numel(), 64),)](x, y, o, x.numel(), B=64)
    return o


def double(x, o=None):
    o = torch.empty_like(x) if o is None else o
    _double[(triton.cdiv(x.numel(), 64),)](x, o, x.numel(), B=64)
    return o
"""
PROGRAM = """
import sys

import torch

import kernels

x = torch.randn(100, device="cuda")
assert x.is_cuda and torch.cuda.is_available()
print(torch.cuda.get_device_name(), sys.argv[1:])
kernels.add(x, x)
kernels.add(x[:64], x[:64])
kernels.double(torch.empty(8, device="cuda"))
assert kernels.padded(50).sum().item() == 50  # what is loaded beside decides nothing
"""
TESTS = """
import pytest
import torch

import kernels


@pytest.mark.parametrize("n", [64, 100, 37])
def test_add(n):
    x = torch.randn(n, device="cuda")
    torch.testing.assert_close(kernels.add(x, x), x + x)


def test_double():
    x = torch.randn(9, device="cuda")
    torch.testing.assert_close(kernels.double(x), x * 2)
"""


@pytest.fixture
def program(project: Project) -> Project:
    project.write("kernels.py", KERNELS)
    project.write("program.py", PROGRAM)
    return project


def test_faults_are_named_by_line_and_the_program_stays_as_it_is(
    program: Project,
) -> None:
    done = program.kfuzz(
        "sanitize", "--gpu", "a100", "--report", "junit=r.xml,sarif=r.sarif",
        "program.py", "--help", "-q",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "NVIDIA A100-SXM4-40GB ['--help', '-q']" in done.stdout
    assert (
        "_add: load at kernels.py:11, program (1, 0, 0): 1 element past the end of x, "
        "y float32[100] (28 elements in all)"
    ) in done.stdout
    assert "_double: load at kernels.py:18" in done.stdout
    assert "x float32[8], which is uninitialized" in done.stdout
    assert "launched at " in done.stdout
    assert "2 faults in 4 launches of 3 kernels, in one process" in done.stdout
    failed = ET.parse(program.folder / "r.xml").findall(".//failure")
    assert [f.get("type") for f in failed] == ["K-MEM-01", "K-MEM-02"]
    results = json.loads((program.folder / "r.sarif").read_text())["runs"][0]["results"]
    places = [r["locations"][0]["physicalLocation"] for r in results]
    assert [p["artifactLocation"]["uri"] for p in places] == ["kernels.py"] * 2
    assert [p["region"]["startLine"] for p in places] == [11, 18]


@pytest.mark.slow
def test_tests_pass_as_they_do_and_faults_are_told_with_them(program: Project) -> None:
    program.write("test_kernels.py", TESTS)
    words = ("-m", "pytest", "-q", "-W", "error", "-n", "2", "test_kernels.py")
    done = program.kfuzz("sanitize", "--format", "json", *words)
    assert done.returncode == 1, done.stderr
    said, _, document = done.stdout.partition("{\n")
    assert "4 passed" in said
    made = json.loads("{" + document)
    (fault,) = made["faults"]
    assert (made["program"], made["launches"], fault["launches"]) == (0, 4, 2)
    assert fault["test"] == "test_kernels.py::test_add[37]"
    assert fault["arguments"]["n"] == "37"
    again = program.python("-m", "pytest", "-q", "--kfuzz-sanitize", "test_kernels.py")
    assert again.returncode == 1
    assert "1 fault in 4 launches of 2 kernels" in again.stdout


@pytest.mark.slow
def test_known_faults_pass_and_old_ones_are_named(program: Project) -> None:
    program.write("known", "kernels.py:11 padded by the caller\nkernels.py:5 gone\n")
    done = program.kfuzz(
        "sanitize", "--suppress", "known", "--select", "_a*", "program.py"
    )
    assert done.returncode == 0, done.stderr
    assert "(suppressed: padded by the caller)" in done.stdout
    assert "kernels.py:5: suppressed, and no fault shows there any more" in done.stdout
    program.write("known", "kernels.py:11\n")
    done = program.kfuzz("sanitize", "--suppress", "known", "program.py")
    assert done.returncode == 2
    assert "known:1: 'kernels.py:11' suppresses nothing" in done.stderr


@pytest.mark.slow
def test_processes_below_are_followed_and_what_cannot_run_is_counted(
    program: Project,
) -> None:
    program.write(
        "program.py",
        dedent("""
        import multiprocessing, subprocess, sys
        import torch
        import kernels

        def child():
            kernels.add(torch.ones(3), torch.ones(3))

        if __name__ == "__main__":
            if len(sys.argv) == 1:
                subprocess.run([sys.executable, __file__, "below"], check=True)
                worker = multiprocessing.get_context("fork").Process(target=child)
                worker.start()
                worker.join()
                x = torch.ones(64, dtype=torch.int32)
                try:
                    kernels._assembly[(1,)](x, x, B=64)
                except Exception as error:
                    print(type(error).__name__)
            else:
                kernels.add(torch.ones(100), torch.ones(100))
        """),
    )
    done = program.kfuzz("sanitize", "program.py")
    assert done.returncode == 1, done.stderr
    assert "1 fault in 2 launches of 1 kernel, in 3 processes" in done.stdout
    assert "_assembly: 1 launch not interpreted: " in done.stdout
    clean = program.kfuzz("sanitize", "--select", "_none", "program.py")
    assert clean.returncode == 0
    strict = program.kfuzz("sanitize", "--select", "_none", "--strict", "program.py")
    assert strict.returncode == 1


def test_what_has_no_launch_is_no_success(program: Project) -> None:
    program.write(
        "program.py", "import torch\nprint(torch.ones(2, device='cuda').device)"
    )
    done = program.kfuzz("sanitize", "program.py")
    assert done.returncode == 4
    assert "cuda:0" in done.stdout
    assert program.kfuzz("sanitize").returncode == 2
    assert program.kfuzz("sanitize", "nowhere.py").returncode == 2


@pytest.mark.slow
def test_a_program_without_end_is_ended(program: Project) -> None:
    program.write("program.py", "import torch\nwhile True: pass")
    done = program.kfuzz("sanitize", "--max-time", "4s", "program.py")
    assert "the program did not end in its time" in done.stdout
