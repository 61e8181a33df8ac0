"""Compiled witnesses on a GPU: planted faults are falsified, correct twins are not."""

import os
import threading
from pathlib import Path

import pytest

from kfuzz.contracts.witnesses.functional import WITNESSES, Witness
from kfuzz.core.budget import Budget
from kfuzz.core.event import FindingSaved, KernelFinished
from kfuzz.core.verdict import State
from kfuzz.engine.campaign import run
from kfuzz.engine.config import RunConfig

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
HANGS = ("relu_hangs",)
TWINS = [w for w in WITNESSES.values() if w.kernel.startswith("triton_")]
MODULES = sorted({w.module for w in TWINS})
CASES = int(os.environ.get("KFUZZ_CASES", "400"))
SECONDS = 240.0


def config(
    witnesses: list[Witness],
    corpus: Path,
    *,
    max_cases: int,
    max_time: float = SECONDS,
) -> RunConfig:
    targets = (f"contracts/witnesses/{w.module}.py::{w.kernel}" for w in witnesses)
    return RunConfig(
        targets=tuple(str(ROOT / target) for target in targets),
        root=ROOT,
        corpus=corpus,
        seed=5,
        budget=Budget(max_time=max_time, max_cases=max_cases),
        device="cuda",
    )


@pytest.mark.parametrize(
    "name",
    [
        n
        for n, w in WITNESSES.items()
        if not w.conforming and "cuda" in w.backends and n not in HANGS
    ],
)
def test_a_planted_fault_is_falsified(name: str, tmp_path: Path) -> None:
    witness, stop = WITNESSES[name], threading.Event()
    seen = []
    for event in run(config([witness], tmp_path, max_cases=2000), stop=stop):
        if isinstance(event, FindingSaved) and event.stage == "done":
            seen.append((event.finding.signature.contract, event.finding.state))
            if (witness.contract, State.CONFIRMED) in seen:
                stop.set()
    assert (witness.contract, State.CONFIRMED) in seen


# One run for each module: a context and a start of torch cost more than the cases.
@pytest.mark.parametrize("module", MODULES)
def test_correct_twins_are_not(module: str, tmp_path: Path) -> None:
    twins = [w for w in TWINS if w.module == module]
    asked = config(twins, tmp_path, max_cases=CASES, max_time=SECONDS * len(twins))
    finished = [
        e for e in run(asked, stop=threading.Event()) if isinstance(e, KernelFinished)
    ]
    assert len(finished) == len(twins)
    for kernel in finished:
        assert kernel.findings == ()
        assert kernel.cases >= 50
