"""kfuzz prove: what it prints and returns."""

import re
import sys
from pathlib import Path

import pytest

from kfuzz.app import main
from tests.benchmarks.planted_races.kernels import PAIRS
from tests.e2e.project import HEADER, RIGHT, Project, strict

pytest.importorskip("kfuzz.features")

ROOT = Path(__file__).parents[2]
CORNERS = f"{ROOT}/tests/features/prove/corners.py"
ALL_SIZES = "proved for all sizes"


def answers(kernel: dict[str, object]) -> dict[str, str]:
    properties = kernel["properties"]
    assert isinstance(properties, list)
    return {p["name"]: p["answer"] for p in properties}


@pytest.mark.slow
def test_a_right_kernel_is_proved_for_all_sizes(project: Project) -> None:
    target = f"{ROOT}/contracts/witnesses/softmax.py::triton_softmax"
    done = project.kfuzz("prove", target, "--device", "interpret", "--format", "json")
    assert done.returncode == 0, done.stderr
    [kernel] = strict(done.stdout)["kernels"]
    assert set(answers(kernel).values()) == {ALL_SIZES}
    assert kernel["premises"]


@pytest.mark.slow
def test_an_overflow_of_32_bits_is_refuted(project: Project) -> None:
    target = f"{CORNERS}::product_of_32_bits_in_a_function"
    words = ("--device", "interpret", "--format", "json", "--max-time", "5m")
    done = project.kfuzz("prove", target, *words)
    [kernel] = strict(done.stdout)["kernels"]
    assert answers(kernel)["no 32-bit overflow"] == "refuted"
    assert [f["state"] for f in kernel["findings"]] == ["confirmed"]
    assert done.returncode == 1


@pytest.mark.slow
def test_what_launches_no_triton_kernel_is_open(project: Project) -> None:
    project.write("kernels.py", HEADER + RIGHT)
    done = project.kfuzz("prove", "kernels.py", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "open: it launches no Triton kernel" in done.stdout


def test_without_the_solver_the_extra_is_named(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project.write("kernels.py", HEADER + RIGHT)
    monkeypatch.chdir(project.folder)
    monkeypatch.setitem(sys.modules, "z3", None)
    assert main(["prove", "kernels.py"]) == 5
    assert "pip install 'kfuzz[prove]'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(PAIRS), 4))
def test_no_race_between_programs_is_called_proved(
    first: int, project: Project
) -> None:
    races = f"{ROOT}/tests/benchmarks/planted_races/kernels.py"
    names = list(PAIRS)[first : first + 4]
    words = ["--device", "interpret", "--format", "json", "--max-time", "15s"]
    done = project.kfuzz("prove", *(f"{races}::{name}" for name in names), *words)
    kernels = strict(done.stdout)["kernels"]
    assert len(kernels) == len(names)
    for kernel in kernels:
        said = answers(kernel)
        both = {said.get("stores of programs apart", ALL_SIZES)}
        both.add(said.get("loads apart from other programs' stores", ALL_SIZES))
        assert both != {ALL_SIZES}, kernel["kernel"]


def corners() -> list[tuple[str, str]]:
    """Return the kernels that break something, and what; the file is not imported."""
    text = Path(CORNERS).read_text()
    return re.findall(r"^@breaks\((\w+).*\n(?:@.*\n)*def (\w+)", text, re.M)


@pytest.mark.slow
@pytest.mark.parametrize(("broken", "name"), corners())
def test_no_corner_is_called_proved(broken: str, name: str, project: Project) -> None:
    names = {"LOADS": "loads in bounds", "STORES": "stores in bounds"}
    names |= {"APART": "stores of programs apart", "WHOLE": "results stored whole"}
    names |= {"INT32": "no 32-bit overflow"}
    words = ["prove", f"{CORNERS}::{name}", "--device", "interpret"]
    done = project.kfuzz(*words, "--format", "json", "--max-time", "30s")
    [kernel] = strict(done.stdout)["kernels"]
    assert answers(kernel).get(names[broken]) != ALL_SIZES


ROWS = """
import kfuzz, torch, triton
import triton.language as tl
from kfuzz import strategies as ks


@triton.jit
def _divided(x, y, sx, n, D: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row, col = offs // D, offs % D
    v = tl.load(x + row * sx + col, mask=offs < n)
    tl.store(y + row * D + col, v, mask=offs < n)


@kfuzz.kernel(kfuzz.reference(
    lambda x: x.clone(), inputs={"x": ks.tensors("M N")}, name="copied"
))
def rows(x):
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    d, n = x.shape[-1], x.numel()
    _divided[(triton.cdiv(n, 128),)](x, y, d, n, D=d, BLOCK=128)
    return y
"""


@pytest.mark.slow
def test_offsets_that_are_taken_apart_into_rows_are_put_together(
    project: Project,
) -> None:
    project.write("kernels.py", ROWS)
    words = ["prove", "kernels.py", "--device", "interpret", "--max-time", "60s"]
    done = project.kfuzz(*words, "--format", "json")
    [kernel] = strict(done.stdout)["kernels"]
    assert set(answers(kernel).values()) == {ALL_SIZES}, done.stdout
