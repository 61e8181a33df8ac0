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
compiled = kernels._double.warmup(x, x, 100, B=64, grid=(1,))
assert compiled.n_regs and compiled.metadata.shared
compiled[(2,)](x, torch.empty_like(x), 100, B=64)
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
    assert "2 faults in 5 launches of 3 kernels, in one process" in done.stdout
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


SEARCHED = """
import torch

import kernels


def main():
    for n in (64, 100, 37):
        kernels.add(torch.randn(n, device="cuda"), torch.randn(n, device="cuda"))


main()
"""


@pytest.mark.slow
def test_a_fault_becomes_a_binding_that_is_searched_around(program: Project) -> None:
    program.write("program.py", SEARCHED)
    kernels = KERNELS.replace("a + b, mask", "3 * a + b, mask")  # no operator's
    program.write("kernels.py", kernels)
    done = program.kfuzz("sanitize", "--bindings", "found.py", "program.py")
    assert done.returncode == 1, done.stderr
    assert "kernels.add: no operator agrees (3 calls)" in done.stdout
    assert "found.py: 1 bound, 0 for a person to name" in done.stdout
    text = (program.folder / "found.py").read_text()
    assert "_add, load of y at kernels.py:11 (K-MEM-01)" in text
    assert "sizes=(37, 64, 100)" in text
    run = program.kfuzz("run", "found.py", "--max-cases", "30", "--seed", "1")
    assert run.returncode == 1, run.stderr
    assert "FAIL add: out-of-bounds read of y" in run.stdout
    assert "fails where N0 is no multiple of 64" in run.stdout
    program.write("kernels.py", kernels.replace("y + i)", "y + i, mask=i < n)"))
    mended = program.kfuzz("run", "found.py", "--max-cases", "30", "--seed", "1")
    assert mended.returncode == 0, mended.stdout + mended.stderr


HINTS = """
import sys

import torch
import triton
import triton.language as tl
from triton.language import multiple_of


@triton.jit
def _wrapped(x, o, n, m, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    i = tl.max_contiguous(tl.multiple_of(i, B), B)
    j = tl.max_contiguous(multiple_of(i % m, B), B)  # what wraps is thrown away
    tl.max_contiguous(i + i // 8 * (m % 64), B)
    tl.assume(m >= 64)
    tl.store(o + i, tl.load(x + j, mask=i < n), mask=i < n)


@triton.jit
def _tile(x, o, s, M: tl.constexpr, N: tl.constexpr):
    p = x + tl.arange(0, M)[:, None] * s + tl.arange(0, N)[None, :]
    p = tl.multiple_of(p, [16, 16])
    tl.store(o + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], tl.load(p))


@triton.jit
def _ranked(x, o, B: tl.constexpr):  # a GPU aligns its allocations to 512 bytes
    p = x + tl.program_id(0) * B + tl.arange(0, B)
    p = tl.max_contiguous(tl.multiple_of(p, 256), B)
    tl.store(o + tl.program_id(0) * B + tl.arange(0, B), tl.load(p))


@triton.jit
def _far(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i * 8388608))


x = torch.randn(256, device="cuda")
o = torch.empty_like(x)
for size in (64, 72, 100, 256):  # of some the host's are not
    _ranked[(1,)](torch.ones(size), torch.empty(64), B=64)
true = [(m, s) for m, s in ((64, 16), (128, 24))]
for m, s in true if len(sys.argv) == 1 else [(100, 20), (40, 24)]:
    _wrapped[(4,)](x, o, 256, m, B=64)
    tile = torch.randn(16, s, device="cuda", dtype=torch.float16)
    _tile[(1,)](tile, torch.empty(16, 16), s, 16, 16)
if len(sys.argv) > 1:
    far = torch.zeros((1 << 31) + (1 << 30), dtype=torch.int8)
    _far[(1,)](far, torch.zeros(512, dtype=torch.int8), B=512)
"""


@pytest.mark.slow
def test_untrue_hints_and_overflows_are_named_and_true_ones_are_not(
    program: Project,
) -> None:
    program.write("program.py", HINTS)
    good = program.kfuzz("sanitize", "program.py")
    assert good.returncode == 0, good.stdout
    assert "0 faults in 8 launches of 3 kernels" in good.stdout
    done = program.kfuzz("sanitize", "program.py", "wrong")
    assert done.returncode == 1, done.stderr
    assert "tl.max_contiguous(64) at program.py:15, program (0, 0, 0)" in done.stdout
    assert "tl.max_contiguous(64) at program.py:14" not in done.stdout
    assert "tl.multiple_of(64) at program.py:14" in done.stdout
    assert "tl.assume at program.py:16, program (0, 0, 0): untrue" in done.stdout
    assert "tl.multiple_of(16, 16) at program.py:23" in done.stdout
    assert "where an offset of 32 bits overflows" in done.stdout
    assert "5 faults in 9 launches of 4 kernels" in done.stdout


COMPILED = """
import torch


@torch.compile
def scaled(x, w):
    return torch.nn.functional.softmax(x * 2 + w, -1).sum(0)


@torch.compile
def asks(x):
    assert torch.cuda.is_available()
    return x + 1


x = torch.randn(8, 33, device="cuda")
wanted = torch.nn.functional.softmax(x * 3, -1).sum(0)
torch.testing.assert_close(scaled(x, x), wanted)
layer = torch.nn.Sequential(torch.nn.Linear(33, 16), torch.nn.GELU())
torch.compile(layer, mode="max-autotune")(x).square().sum().backward()
gradient, layer[0].weight.grad = layer[0].weight.grad, None
layer(x).square().sum().backward()
torch.testing.assert_close(gradient, layer[0].weight.grad)
torch.testing.assert_close(asks(x), x + 1)
"""


@pytest.mark.slow
def test_what_torch_compiles_is_interpreted_and_what_it_cannot_is_counted(
    program: Project,
) -> None:
    program.write("program.py", COMPILED)
    done = program.kfuzz("sanitize", "--format", "json", "program.py")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    names = [k["kernel"].partition("::")[2] for k in made["kernels"]]
    assert any("softmax" in name for name in names)
    assert any("gelu_backward" in name for name in names)
    (left,) = made["not_interpreted"]
    assert left["kernel"] == "program.py::torch.compile(asks)"
    assert left["why"].startswith("AssertionError")


VALUED = """
import torch
import triton
import triton.language as tl


@triton.jit
def _soft(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, B)
    inside = tl.arange(0, B) < n
    v = tl.load(x + at, mask=inside, other=0.0 if B == 8 else float("-inf"))
    v = tl.exp(v - tl.max(v, 0))
    tl.store(y + at, v / tl.sum(v, 0), mask=inside)


def softmax(x):
    y, n = torch.empty_like(x), x.shape[-1]
    _soft[(x.numel() // n,)](x, y, n, triton.next_power_of_2(n))
    return y
"""


@pytest.mark.slow
def test_results_are_held_to_the_operator_that_is_recognised(program: Project) -> None:
    program.write("soft.py", VALUED)
    call = "soft.softmax(torch.randn(3, {}, device='cuda'))\n"
    head = "import torch\nimport soft\ntorch.manual_seed(0)\n"
    program.write("program.py", head + "".join(map(call.format, (4, 20, 33, 7, 16))))
    assert program.kfuzz("sanitize", "program.py").returncode == 0
    done = program.kfuzz("sanitize", "--values", "--bindings", "f.py", "program.py")
    assert done.returncode == 1, done.stderr
    assert "softmax: softmax: y[" in done.stdout
    assert "1 launch, least: x=float32[3, 7]" in done.stdout
    assert "@kfuzz.kernel(ops.softmax" in (program.folder / "f.py").read_text()


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


def test_what_a_killed_program_did_is_reported(program: Project) -> None:
    program.write(
        "program.py",
        "import os\nimport torch\nimport kernels\n"
        "x = torch.randn(100, device='cuda')\n"
        "kernels.add(x, x)\nos.kill(os.getpid(), 9)",
    )
    done = program.kfuzz("sanitize", "program.py")
    assert done.returncode == 1
    assert "signal 9" in done.stdout
    assert "kernels.py:11, program (1, 0, 0): 1 element past the end" in done.stdout
