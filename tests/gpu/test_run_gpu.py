"""Compiled witnesses on a GPU: planted faults are falsified, correct twins are not."""

import os
import threading
from pathlib import Path

import pytest

from kfuzz.contracts.witnesses.roster import everywhere
from kfuzz.contracts.witnesses.witness import Witness
from kfuzz.core.budget import Budget
from kfuzz.core.event import FindingSaved, KernelFinished
from kfuzz.core.verdict import Kind, State
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.campaign import run
from tests.helpers.searches import searched
from tests.quality.hunting import ROOT, targets_of

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
HANGS = ("relu_hangs",)
TWINS = [w for w in everywhere().values() if w.kernel.startswith("triton_")]
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
    return RunConfig(
        targets=targets_of(w.kernel for w in witnesses),
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
        for n, w in everywhere().items()
        if not w.conforming and "cuda" in w.backends and n not in HANGS
    ],
)
def test_a_planted_fault_is_falsified(name: str, tmp_path: Path) -> None:
    witness, stop = everywhere()[name], threading.Event()
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


ENDLESS = """
import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz.contracts import operators as ops


@triton.jit
def endless_kernel(x_ptr, y_ptr):
    while tl.load(x_ptr, volatile=True) != 12345.0:
        tl.store(y_ptr, 1.0)


@kfuzz.kernel(ops.relu)
def endless(x):
    y = torch.empty_like(x)
    if x.numel():
        endless_kernel[(1,)](x, y)
    return y
"""


def test_a_kernel_that_hangs_in_its_first_call_is_found(tmp_path: Path) -> None:
    # As it returned, it is known not to compile: it has no longer than other calls.
    file = tmp_path / "endless.py"
    file.write_text(ENDLESS)
    events = searched(file, seed=5, max_time=70.0, device="cuda")
    saved = [event.finding for event in events if isinstance(event, FindingSaved)]
    assert saved
    assert saved[-1].failure.kind is Kind.HANG, saved[-1].failure
    assert "within 20 s" in saved[-1].failure.message
