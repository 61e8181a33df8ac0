"""`kfuzz observe`, from the command line."""

import pytest

from tests.e2e.project import Project

pytest.importorskip("kfuzz.features")

LIBRARY = """
import torch
import triton
import triton.language as tl


@triton.jit
def _scaled(x, w, y, n, B: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, B)
    inside = tl.arange(0, B) < n
    v = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    r = 1 / tl.sqrt(tl.sum(v * v, 0) / n + 1e-6)
    g = tl.load(w + tl.arange(0, B), mask=inside, other=0.0)
    tl.store(y + at, v * r * g, mask=inside)


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, eps):
        y = torch.empty_like(x)
        n = x.shape[-1]
        _scaled[(x.numel() // n,)](x, w, y, n, triton.next_power_of_2(n))
        return y


@triton.jit
def _halved(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n) / 2 - 1, mask=at < n)


def odd(x):
    y = torch.empty_like(x)
    _halved[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), 64)
    return y
"""
PROGRAM = """
import sys

import torch

import library

torch.manual_seed(int(sys.argv[1]))
for n in (8, 24):
    x = library.Norm.apply(torch.randn(3, n), torch.randn(n), 1e-6)
    print(float(library.odd(x).sum()))
"""


@pytest.mark.slow
def test_a_program_becomes_bindings_that_can_be_searched(project: Project) -> None:
    project.write("library.py", LIBRARY)
    project.write("program.py", PROGRAM)
    plain = project.python("program.py", "7", environment={"TRITON_INTERPRET": "1"})
    done = project.kfuzz("observe", "program.py", "7", "--out", "found.py")
    assert done.returncode == 0, done.stderr
    assert plain.stdout
    assert done.stdout.startswith(plain.stdout)
    assert "library.Norm.apply: ops.rms_norm (2 calls)" in done.stdout
    assert "found.py: 1 bound, 1 for a person to name" in done.stdout
    text = (project.folder / "found.py").read_text()
    assert "sizes=(3, 8, 24)" in text
    assert "library.odd(x)" in text
    run = project.kfuzz("run", "found.py", "--max-cases", "12", "--seed", "1")
    assert "found.py::norm" in run.stdout
    assert run.returncode in (0, 1), run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("guard", ['if __name__ == "__main__":', "if True:"])
def test_a_program_s_own_kernels_are_bound_where_importing_it_does_not_run_it(
    project: Project, guard: str
) -> None:
    text = LIBRARY.replace("/ 2 - 1", "* (tl.load(x + at, mask=at < n) > 0)")
    calls = "".join(f"    relu(torch.randn({n}, {n}))\n" for n in (3, 8))
    project.write(
        "own.py", f"{text.replace('def odd', 'def relu')}\n\n{guard}\n{calls}"
    )
    done = project.kfuzz("observe", "own.py", "--out", "found.py")
    assert done.returncode == 0, done.stderr
    bound = "own.relu: ops.relu (2 calls)" in done.stdout
    assert bound is ("__main__" in guard), done.stdout
    if bound:
        assert project.kfuzz("check", "found.py").returncode in (0, 1)
