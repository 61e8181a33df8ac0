"""Correct kernels and torch's own stay without a finding that is not listed.

KFUZZ_CASES=10000 pytest tests/quality/test_no_false_alarms.py runs what a release
needs; the default is what a change can wait for. KFUZZ_SEED chooses the cases.
"""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from kfuzz.contracts.platform import torch_cpu
from kfuzz.contracts.platform.catalogue import kernels
from kfuzz.contracts.platform.table import DEFECTS
from kfuzz.contracts.witnesses.roster import everywhere
from kfuzz.core.event import FindingSaved, KernelFinished, Notice
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import Verdict
from kfuzz.targets.load import load_all
from tests.helpers.listed import is_listed
from tests.helpers.tiers import usual
from tests.quality.hunting import ROOT, search, search_kernels

CASES = int(os.environ.get("KFUZZ_CASES", "12"))
SEED = int(os.environ.get("KFUZZ_SEED", "1"))
# Of these many each push tries one, in the order of their names.
FEW = 1 if "KFUZZ_CASES" in os.environ else 6
CONFORMING = [name for name, witness in everywhere().items() if witness.conforming]
TORCH = [name for name in CONFORMING if name.startswith("torch_")]
TRITON = [name for name in CONFORMING if name.startswith("triton_")]
OTHERS = sorted({*CONFORMING} - {*TORCH, *TRITON})
MODULES = sorted({everywhere()[name].module for name in TRITON})
# Modules of many twins, searched in one run of an eighth of the cases each.
MANY = (
    "attention", "classes.configured", "classes.reach", "elementwise", "moves",
    "normalisations", "products", "reductions",
)  # fmt: skip


def twins(*modules: str) -> list[str]:
    return [name for name in TRITON if everywhere()[name].module in modules]


# What keeps torch, oneDNN and MKL from a processor's vector instructions.
SCALAR = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_CBWR": "COMPATIBLE",
}


def only_vectorised(finding: str, corpus: Path) -> bool:
    """Whether a finding is gone where torch runs its plain code: it is torch's then.

    A false alarm of kfuzz would be there still.
    """
    command = [sys.executable, "-m", "kfuzz", "replay", finding]
    made = subprocess.run(
        [*command, "--corpus", str(corpus)],
        env=os.environ | SCALAR, cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    return made.returncode == 0


def report_torch(findings: Iterable[Finding]) -> None:
    """Tell of true findings in torch that no list has: they fail no build."""
    told = [f"{f.signature.kernel} breaks {f.signature.contract}" for f in findings]
    pytest.xfail(f"new in torch on this processor, list it: {'; '.join(told)}")


# Torch's declarations are those of its CPU implementations, which are many.
SEARCHES = {
    "torch": (TORCH[::FEW], "cpu", max(CASES // 5, 5)),
    "others": (OTHERS[::FEW], "auto", CASES),
    "many": (twins(*MANY), "auto", max(CASES // 8, 10)),
    **{m: (twins(m)[::FEW], "auto", CASES) for m in MODULES if m not in MANY},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [usual(n, is_usual=n != "many") for n in SEARCHES],
)
def test_no_finding(name: str, tmp_path: Path) -> None:
    names, device, cases = SEARCHES[name]
    events = search(names, tmp_path, seed=SEED, cases=cases, device=device)
    saved = {e.finding.id: e.finding for e in events if isinstance(e, FindingSaved)}
    alarms = {i for i in saved if name != "torch" or not only_vectorised(i, tmp_path)}
    assert alarms == set()
    assert bool(saved) is bool(list(tmp_path.iterdir()))
    finished = [e for e in events if isinstance(e, KernelFinished)]
    assert len(finished) == len(names)
    for kernel in finished:
        assert kernel.cases == cases
        assert kernel.refusals == ()
        tally = kernel.contracts["K-VAL-01"]
        if not saved:
            assert kernel.worst_ratio <= 1
            assert tally.verdict is Verdict.CONFORMS
        # Most cases must say something, or finding nothing would mean nothing.
        assert tally.decided > cases / 3
    told = [e.message for e in events if isinstance(e, Notice)]
    assert [text for text in told if "could not be judged" in text] == []
    if saved:
        report_torch(saved.values())


@pytest.mark.slow
def test_torch_declared_honestly_shows_listed_defects_only(tmp_path: Path) -> None:
    version = str(torch.__version__)
    names = [k.name for k in kernels("cpu", version) if k.claims != k.excused]
    targets = tuple(f"{torch_cpu.__name__}:{name}" for name in names)
    events = search_kernels(
        load_all(targets, root=ROOT), tmp_path, seed=SEED, cases=max(CASES // 4, 5),
        device="cpu",
    )  # fmt: skip
    strange = {
        e.finding.id: e.finding
        for e in events
        if isinstance(e, FindingSaved)
        and not is_listed(
            e.finding.signature.kernel, e.finding.signature.contract, DEFECTS, "cpu",
            version,
        )
    }  # fmt: skip
    assert {i for i in strange if not only_vectorised(i, tmp_path)} == set()
    if strange:
        report_torch(strange.values())


@pytest.mark.slow
def test_a_listed_defect_of_torch_is_found(tmp_path: Path) -> None:
    # One that shows on every processor, or finding no other would mean nothing.
    target = f"{torch_cpu.__name__}:torch_take_along_dim"
    events = search_kernels(
        load_all((target,), root=ROOT), tmp_path, seed=SEED, cases=max(CASES * 3, 90),
        device="cpu",
    )  # fmt: skip
    found = {
        e.finding.signature.contract for e in events if isinstance(e, FindingSaved)
    }
    assert found == {"C-EXC-02"}


def test_every_conforming_witness_is_searched_at_night() -> None:
    searched = {name for names, _, _ in SEARCHES.values() for name in names}
    searched |= {*TORCH, *OTHERS} | {name for m in MODULES for name in twins(m)}
    assert searched == {*CONFORMING}
