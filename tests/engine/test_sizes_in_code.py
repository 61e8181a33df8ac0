"""Which sizes a kernel's own code names, and that they are drawn."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kfuzz.contracts.classes import CLASSES
from kfuzz.core.budget import Scale
from kfuzz.evaluation.drawing import sizes_in_code
from kfuzz.evaluation.edits import referred
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.evaluation.worker import Worker
from kfuzz.targets.load import load_all
from tests.helpers.budgets import SIZE_BUDGETS
from tests.helpers.in_process import drawn

ROOT = Path(__file__).parents[2]
KERNELS = """
import torch
import triton
import triton.language as tl
from helper_of_named_sizes import helper
from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops

LIMIT = 1777


@triton.autotune(configs=[triton.Config({"B": 96})], key=["n"])
@triton.jit
def body(x, y, n, B: tl.constexpr, C: tl.constexpr = 48):
    if n > 2999:
        n = 0
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group=77):
        body[(1,)](x, x, 1)
        return x


@kernel(ops.relu)
def mine(x, block=1024, rows=99):
    inner = lambda n: n > LIMIT
    return Doubled.apply(helper(x)) if inner(x.numel()) else torch.relu(x)
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("named")
    (folder / "helper_of_named_sizes.py").write_text(
        "def helper(x):\n    return x if x.shape == (5, 4321) else x\n"
    )
    (folder / "kernels.py").write_text(KERNELS)
    return folder / "kernels.py"


def test_constants_defaults_globals_and_configurations_are_named(file: Path) -> None:
    [loaded] = load_all((str(file),), root=file.parent)
    sizes = sizes_in_code(loaded.kernel)
    named = {1777, 4321, 96, 48, 2999, 77, 99}
    assert set(sizes) == {n + step for n in named for step in (-1, 0, 1)}


def test_bodies_are_read_where_the_interpreter_runs_them(file: Path) -> None:
    text = f"""
from pathlib import Path
from kfuzz.evaluation.drawing import sizes_in_code
from kfuzz.targets.load import load_all
[loaded] = load_all(({str(file)!r},), root=Path({str(file.parent)!r}))
print(2999 in sizes_in_code(loaded.kernel))
"""
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={"PYTHONPATH": str(ROOT), "PATH": "", "TRITON_INTERPRET": "1"},
        capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert done.stdout.split() == ["True"], done.stderr


def test_sizes_that_code_names_are_drawn(file: Path) -> None:
    [loaded] = load_all((str(file),), root=file.parent)
    found = {n for case in drawn(loaded.kernel, 600) for n in case.dims.values()}
    assert {1776, 1777, 1778, 4321, 2999} <= found


def test_code_of_torch_names_none() -> None:
    [loaded] = load_all(("contracts/witnesses/torch_ops.py::torch_softmax",), root=ROOT)
    assert sizes_in_code(loaded.kernel) == ()


def test_cases_of_a_seed_do_not_follow_what_calls_count(tmp_path: Path) -> None:
    text = (
        "import torch\n"
        "from kfuzz.contracts import kernel\n"
        "from kfuzz.contracts import operators as ops\n\n"
        "calls = 11\n\n\n"
        "@kernel(ops.relu)\n"
        "def counting(x):\n"
        "    global calls\n"
        "    calls += 2000\n"
        "    return torch.relu(x)\n"
    )

    def generated(calls: int) -> object:
        file = tmp_path / f"counting_{calls}.py"
        file.write_text(text)
        [loaded] = load_all((str(file),), root=tmp_path)
        worker, budget = Worker(), SIZE_BUDGETS["cpu"]
        worker.adopt(Evaluator(loaded.kernel, setting_of("cpu", budget, set(CLASSES))))
        for _ in range(calls):
            loaded.kernel.function(torch.ones(3))
        return worker.generate(
            budget=budget, without=frozenset(), scale=Scale.USUAL, cases=200,
            seed_value=3,
        )  # fmt: skip

    assert generated(0) == generated(2)


def test_sizes_come_in_the_order_of_the_code() -> None:
    """A seed means the same cases in each process: no set's order is in them."""
    held = {f"LIMIT_{n}": n for n in (1500, 777, 3333, 999, 2777)}
    text = f"def of(x):\n    return x if x in ({', '.join(held)},) else 0\n"
    made: dict[str, Any] = {"__name__": "kernels", **held}
    exec(text, made)
    assert list(referred(made["of"])) == [*held.values()]
