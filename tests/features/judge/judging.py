"""Judging of candidates in the tests' own process."""

import threading
from functools import partial
from pathlib import Path
from typing import Any

from kfuzz.core.budget import Budget
from kfuzz.execution.processes.child import Zygote
from kfuzz.features.judge.candidate import Candidate
from kfuzz.features.judge.outcome import Judgement
from kfuzz.features.judge.procedure import JudgeConfig, Judging

ROOT = Path(__file__).parents[3]
SERVED: dict[str, Any] = {
    "device": "cpu", "max_time": 60, "build_time": 60, "max_cases": 4,
    "nonfinite": "undefined",
}  # fmt: skip
"""Options of the one judge that tests share, by `shared.judge_with`."""


def problem(
    forward: str, inputs: str = "", *, name: str = "Model", takes: str = "x",
    init: str = "pass",
) -> str:  # fmt: skip
    """Return a file of KernelBench's form."""
    return (
        "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n"
        f"class {name}(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, {takes}):\n        {forward}\n"
        f"def get_inputs():\n    return [{inputs}]\n"
        "def get_init_inputs():\n    return []\n"
    )


def judged(
    reference: Path,
    candidate: Path,
    zygote: Zygote,
    corpus: Path,
    *,
    max_cases: int = 60,
    device: str = "cpu",
    **more: Any,
) -> Judgement:
    config = JudgeConfig(
        reference=reference, candidate=candidate, root=ROOT, corpus=corpus, seed=7,
        budget=Budget(max_time=40.0, max_cases=max_cases, max_findings=1),
        device=device, **more,
    )  # fmt: skip
    judging = Judging(config, opened=partial(Candidate, zygote=zygote))
    for _ in judging.events(stop=threading.Event()):
        pass
    return judging.judgement()
