"""kfuzz behind others' interfaces, on files of their published formats."""

import asyncio
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import kfuzz
from kfuzz.core.errors import UsageError
from kfuzz.features.judge.adapters import (
    flashinfer,
    kernelbench,
    kernelbot,
    rewards,
)
from kfuzz.features.judge.adapters.rewards import judge_with
from tests.features.judge.judging import SERVED, problem
from tests.features.judge.test_service import PAIRS

SOFTMAX = PAIRS / "softmax"


@pytest.fixture(scope="module")
def judge() -> kfuzz.Judge:
    """The judge of this process with these options: one for all adapters here."""
    return judge_with(**SERVED)


# KernelBench ------------------------------------------------------------------------


def evaluated(candidate: str, **more: Any) -> kernelbench.KernelExecResult:
    reference = (SOFTMAX / "reference.py").read_text()
    return kernelbench.eval_kernel_against_ref(
        reference, candidate, seed_num=3, num_correct_trials=5, backend="triton",
        device="cpu", options=SERVED, **more,
    )  # fmt: skip


@pytest.mark.slow
def test_kernelbench_gets_its_result(judge: kfuzz.Judge) -> None:
    wrong = evaluated((SOFTMAX / "zeros.py").read_text())
    assert (wrong.compiled, wrong.correctness) == (True, False)
    assert "K-VAL-01" in wrong.metadata["correctness_issue"]
    broken = evaluated("import (")
    assert (broken.compiled, broken.correctness) == (False, False)
    assert "SyntaxError" in broken.metadata["compilation_error"]
    assert wrong.model_dump()["runtime"] == -1.0
    assert json.dumps(wrong.model_dump())
    with pytest.raises(UsageError, match="measures no performance"):
        evaluated("", measure_performance=True)


@pytest.mark.slow
def test_kernelbench_may_convert_a_reference(judge: kfuzz.Judge) -> None:
    for precision in (torch.float32, torch.bfloat16):
        right = evaluated((SOFTMAX / "honest.py").read_text(), precision=precision)
        assert (right.compiled, right.correctness) == (True, True), right


# KernelBot --------------------------------------------------------------------------

TASK = """
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "task.py", "source": "task.py"}
  - {"name": "utils.py", "source": "../utils.py"}
  - {"name": "reference.py", "source": "reference.py"}
  - {"name": "eval.py", "source": "../eval.py"}
lang: "py"
description: |
  Add two tensors.
config:
  main: "eval.py"
tests:
  - {"size": 12, "seed": 4242}
benchmarks:
  - {"size": 1024, "seed": 31232}
"""
UTILS = """
import torch

def make_match_reference(reference, rtol=1e-5, atol=1e-8):
    def check(data, output):
        return torch.allclose(reference(data), output, rtol, atol), ""
    return check
"""
REFERENCE = """
import torch
from task import input_t, output_t
from utils import make_match_reference

def ref_kernel(data: input_t) -> output_t:
    A, B = data
    return A + B

def generate_input(size: int, seed: int) -> input_t:
    gen = torch.Generator()
    gen.manual_seed(seed)
    return tuple(torch.randn(size, size, generator=gen) for _ in range(2))

check_implementation = make_match_reference(ref_kernel, rtol=0.1, atol=0.1)
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    folder = tmp_path / "problems" / "add_py"
    folder.mkdir(parents=True)
    (folder / "task.yml").write_text(TASK)
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "task.py").write_text(
        "import torch\ninput_t = output_t = tuple[torch.Tensor, torch.Tensor]\n"
    )
    (folder.parent / "utils.py").write_text(UTILS)
    return folder


@pytest.mark.slow
def test_kernelbot_prefilters_submissions(
    task: Path, judge: kfuzz.Judge, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    right = (
        "from __future__ import annotations\nfrom task import input_t, output_t\n"
        "import utils\n\ndef custom_kernel(data: input_t) -> output_t:\n"
        "    a, b = data\n    return b + a\n"
    )
    score = kernelbot.judge_submission(judge, task, right)
    assert kernelbot.prefiltered(score) == {
        "classification": "valid", "should_filter": False, "filter_reason": "",
        "matched_patterns": [],
    }  # fmt: skip
    wrong = right.replace("b + a", "b + a + 1e-3")
    monkeypatch.setattr(kernelbot, "Judge", lambda **options: Kept(judge))
    monkeypatch.setattr("sys.stdin", io.StringIO(wrong))
    assert kernelbot.main([str(task), "--profile", "strict", "--api-mode"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["should_filter"] is True
    assert told["classification"] == "violates"
    assert told["matched_patterns"][0]["pattern"] == "K-VAL-01"
    assert kernelbot.main([str(task.parent)]) == 2
    assert "task.yml" in capsys.readouterr().err


class Kept:
    """A judge that a block does not close."""

    def __init__(self, judge: kfuzz.Judge) -> None:
        self._judge = judge

    def __enter__(self) -> kfuzz.Judge:
        return self._judge

    def __exit__(self, *error: object) -> None:
        pass


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lang: cu\nfiles: []\n", "no task in Python"),
        ("lang: py\nfiles: []\ntests: [{seed: 1}]\n", "no reference.py"),
        ("{", "no YAML"),
    ],
)
def test_a_folder_that_is_no_task_is_said(text: str, says: str, task: Path) -> None:
    (task / "task.yml").write_text(text)
    with pytest.raises(UsageError, match=says):
        kernelbot.task_of(task)


# Rewards ----------------------------------------------------------------------------

ANSWER = (
    "So:\n```python\nimport torch\ndef f(x):\n    return torch.relu(x){}\n```\nDone."
)
TRUTH = problem("return x.relu()", "torch.randn(6, 9)")


def test_verl_gets_a_score(judge: kfuzz.Judge) -> None:
    def scored(answer: str, truth: str = TRUTH) -> dict[str, Any]:
        return rewards.compute_score("kernels", answer, truth, {"entry": "f"}, **SERVED)

    right = scored(ANSWER.format(""))
    assert (right["score"], right["verdict"], right["drop"]) == (1.0, "conforms", False)
    assert scored(ANSWER.format(" + 1"))["score"] == 0.0
    with pytest.raises(UsageError, match="has no Model"):
        scored(ANSWER, "nothing = 0")


def test_verifiers_get_a_reward(judge: kfuzz.Judge) -> None:
    reward = rewards.reward_function(judge)
    messages = [{"role": "assistant", "content": ANSWER.format("*2")}]
    state: dict[str, Any] = {}
    of_rubric = reward(
        completion=messages, answer=TRUTH, info={"entry": "f"}, state=state
    )
    trace = SimpleNamespace(last_reply=ANSWER.format(""))
    of_task = reward(
        task=SimpleNamespace(answer=TRUTH, info={"entry": "f"}), trace=trace
    )

    async def both() -> list[float]:
        return list(await asyncio.gather(of_rubric, of_task))

    assert asyncio.run(both()) == [0.0, 1.0]
    assert state["kfuzz"]["verdict"] == "violates"


def test_the_program_of_an_answer_is_its_last_closed_block() -> None:
    assert rewards.code_of("x = 1") == "x = 1"
    two = "```py\na\n```\n```cpp\nb\n```\n```\nc\n```\n```python\ncut"
    assert rewards.code_of(two) == "c\n"


# FlashInfer-Bench and SOL-ExecBench -------------------------------------------------

DEFINITION: dict[str, Any] = {
    "name": "rmsnorm_h24", "op_type": "rmsnorm", "description": "RMSNorm.",
    "axes": {
        "batch": {"type": "var"}, "hidden": {"type": "const", "value": 24},
        "half": {"type": "expr", "expression": "hidden // 2"},
    },
    "inputs": {
        "x": {"shape": ["batch", "hidden"], "dtype": "float32"},
        "weight": {"shape": ["hidden"], "dtype": "float32"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["batch", "hidden"], "dtype": "float32"}},
    "reference": "import torch\n\ndef run(x, weight, eps):\n"
    "    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight\n",
}  # fmt: skip
WORKLOAD: dict[str, Any] = {
    "definition": "rmsnorm_h24", "solution": None, "evaluation": None,
    "workload": {
        "uuid": "a1", "axes": {"batch": 6},
        "inputs": {
            "x": {"type": "random"}, "weight": {"type": "random"},
            "eps": {"type": "scalar", "value": 1e-6},
        },
    },
}  # fmt: skip


def solution(factor: str, *, into: bool) -> dict[str, Any]:
    """A solution of two files, which relies on the constant axis."""
    told = "def run(x, weight, eps{}):\n    assert x.shape[1] == 24\n    made = {}\n{}"
    value = f"norm(x, eps) * weight{factor}"
    end = "    y.copy_(made)\n" if into else "    return {'y': made}\n"
    return {
        "name": "mine", "definition": "rmsnorm_h24", "author": "me",
        "spec": {
            "language": "python", "target_hardware": ["cpu"], "dependencies": [],
            "entry_point": "main.py::run", "destination_passing_style": into,
        },
        "sources": [
            {"path": "main.py", "content": "from lib.norms import norm\n"
             + told.format(", y" if into else "", value, end)},
            {"path": "lib/norms.py", "content": "def norm(x, eps):\n"
             "    return x / ((x * x).mean(-1, keepdim=True) + eps).sqrt()\n"},
        ],
    }  # fmt: skip


def test_flashinfer_solutions_are_judged(judge: kfuzz.Judge) -> None:
    right = solution("", into=False)
    made = flashinfer.judge_solution(judge, DEFINITION, WORKLOAD, right)
    assert made.verdict == "conforms", made
    wrong = solution(" + 1e-3", into=True)
    assert flashinfer.judge_solution(judge, DEFINITION, WORKLOAD, wrong).reward == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"inputs": {"x": {"shape": [], "dtype": "float4_e2m1"}}}, "is not supported"),
        ({"inputs": {"x": {"shape": ["batch"], "dtype": "f32"}}}, "unknown dtype"),
        ({"inputs": {"x": {"shape": ["rows"], "dtype": "float32"}}}, "rows"),
        ({"outputs": {"y": "float32"}}, "not of the format"),
        ({"axes": {**DEFINITION["axes"], "n": {"type": "var"}}}, "no size of axis n"),
    ],
)
def test_a_definition_that_is_none_is_said(change: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        flashinfer.task_of({**DEFINITION, **change}, WORKLOAD)
    wrong = {**solution("", into=True), "spec": {"entry_point": "a.cu::b"}}
    with pytest.raises(UsageError, match="no entry point in Python"):
        flashinfer.candidate_of(DEFINITION, wrong)
