"""Coverage-guided search: changing bytes, keeping inputs, reading a kernel's code."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from kfuzz.core.budget import Scale
from kfuzz.core.errors import UsageError
from kfuzz.core.recipe import Case
from kfuzz.engine.config import Engine, RunConfig
from kfuzz.evaluation.drawing import fuzz_target, strategy_of
from kfuzz.features.coverage.child import own_functions, padded
from kfuzz.features.coverage.search import require
from kfuzz.targets.load import load_all
from tests.helpers.budgets import SIZE_BUDGETS

ROOT = Path(__file__).parents[2]
BRANCHES = "tests.helpers.branching"


def _config(**changes: object) -> RunConfig:
    given: dict[str, object] = {
        "targets": (), "root": ROOT, "corpus": ROOT, "engine": Engine.ATHERIS,
    }  # fmt: skip
    return RunConfig(**{**given, **changes})  # type: ignore[arg-type]


def _drawn(name: str, inputs: list[bytes]) -> list[Case]:
    [loaded] = load_all((f"{BRANCHES}:{name}",), root=ROOT)
    strategy = strategy_of(loaded.kernel, SIZE_BUDGETS["cpu"])
    assert strategy is not None
    found: list[Case] = []
    target = fuzz_target(strategy, found.append)
    for data in inputs:
        target(padded(data))
    return found


def test_bytes_give_the_same_case_whoever_draws_it() -> None:
    inputs = [bytes([n, n * 7 % 256]) for n in range(50)]
    cases = _drawn("softmax_tuned_shape", inputs)
    assert len(cases) >= 45  # padded, so that hardly any is too short
    assert cases == _drawn("softmax_tuned_shape", inputs)
    assert len({str(case) for case in cases}) > 40


def test_what_a_case_read_gives_that_case() -> None:
    [loaded] = load_all((f"{BRANCHES}:relu_odd_shape",), root=ROOT)
    strategy = strategy_of(loaded.kernel, SIZE_BUDGETS["cpu"])
    assert strategy is not None
    found: list[Case] = []
    target = fuzz_target(strategy, found.append)
    read = target(padded(b"\x05"))
    assert read is not None
    assert target(padded(read)) == read
    assert found[0] == found[1]


@pytest.mark.slow
def test_a_kernels_own_functions(tmp_path: Path) -> None:
    (tmp_path / "helper_of_own_code.py").write_text("def helper(x):\n    return x\n")
    (tmp_path / "own_code_kernels.py").write_text(
        "import torch\n"
        "from helper_of_own_code import helper\n"
        "from kfuzz.contracts import kernel\n"
        "from kfuzz.contracts import operators as ops\n"
        "@kernel(ops.relu)\n"
        "def mine(x):\n"
        "    return torch.relu(helper(x))\n"
    )
    [loaded] = load_all((str(tmp_path / "own_code_kernels.py"),), root=tmp_path)
    names = {f.__name__ for f in own_functions(loaded.kernel)}
    assert names == {"helper", "mine"}


@pytest.mark.slow
def test_bodies_are_python_in_the_interpreter_alone() -> None:
    # TRITON_INTERPRET is read when triton is imported: a fresh process.
    text = f"""
from pathlib import Path
from kfuzz.targets.load import load_all
from kfuzz.features.coverage.child import own_functions
[loaded] = load_all(("{BRANCHES}:relu_narrow_body",), root=Path("."))
body = loaded.kernel.function.__globals__["branching_kernel"]
print(body.rewrite() in own_functions(loaded.kernel))
"""
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={"PYTHONPATH": str(ROOT), "PATH": "", "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True"]  # the copy that runs
    [loaded] = load_all((f"{BRANCHES}:relu_narrow_body",), root=ROOT)
    body = loaded.kernel.function.__globals__["branching_kernel"]
    if type(body).__name__ == "JITFunction":
        assert body.fn not in own_functions(loaded.kernel)


def test_what_the_engine_cannot_do_is_said_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    require(_config())
    with pytest.raises(UsageError, match="a process of its own"):
        require(_config(isolate="none"))
    with pytest.raises(UsageError, match="too few cases"):
        require(_config(scale=Scale.LARGE))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"atheris is not installed.*pip install"):
        require(_config())
