"""Compiled witnesses on a GPU: planted faults are falsified, correct twins are not."""

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


def config(witness: Witness, corpus: Path, *, max_cases: int) -> RunConfig:
    target = f"contracts/witnesses/{witness.module}.py::{witness.kernel}"
    return RunConfig(
        targets=(str(ROOT / target),),
        root=ROOT,
        corpus=corpus,
        seed=5,
        budget=Budget(max_time=240.0, max_cases=max_cases),
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
    for event in run(config(witness, tmp_path, max_cases=2000), stop=stop):
        if isinstance(event, FindingSaved) and event.stage == "done":
            seen.append((event.finding.signature.contract, event.finding.state))
            if (witness.contract, State.CONFIRMED) in seen:
                stop.set()
    assert (witness.contract, State.CONFIRMED) in seen


@pytest.mark.parametrize(
    "name", [n for n, w in WITNESSES.items() if w.conforming and n.startswith("triton")]
)
def test_a_correct_twin_is_not(name: str, tmp_path: Path) -> None:
    events = run(
        config(WITNESSES[name], tmp_path, max_cases=400), stop=threading.Event()
    )
    (finished,) = [e for e in events if isinstance(e, KernelFinished)]
    assert finished.findings == ()
    assert finished.cases >= 50
