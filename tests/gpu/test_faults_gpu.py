"""Every fault of the list, in Triton and in CUDA C++, is falsified under its class and
shrinks to the minimum that the list states. The table is printed at the end.
"""

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kfuzz.contracts.witnesses.gpu.faults import CONFORMING
from kfuzz.contracts.witnesses.witness import Witness
from kfuzz.core.budget import Scale
from kfuzz.core.event import FindingSaved, KernelFinished, Notice
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import State
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.campaign import run
from kfuzz.features.lab.grade.calibrating import passes_functional
from tests.gpu.conftest import FALSIFIED
from tests.helpers.gpu_faults import FAULTS, Fault
from tests.helpers.minima import ON_GPU
from tests.helpers.searches import config_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    # Triton tells of a default that is to change.
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION"),
]
ROOT = Path(__file__).resolve().parents[2]
CASES = int(os.environ.get("KFUZZ_CASES", "2000"))
TWIN_CASES = int(os.environ.get("KFUZZ_CASES", "100"))
SEED = int(os.environ.get("KFUZZ_SEED", "5"))
# A finding that loses the device is taken to its minimum after them.
SECONDS = 40.0
# What is found once in so many runs of a program that has no fixed order.
OF_CHANCE = {"missing barrier", "atomics declared bitwise"}


@dataclass
class Seen:
    """What a run of one kernel showed, in seconds from its start.

    Attributes:
        findings: all that were found, each as it was last saved.
        found: when the first one under a class of its own was found.
        minimal: when it was confirmed at its minimum.
        cases: how many were judged.
        notices: what the run told besides.
    """

    findings: dict[str, Finding] = field(default_factory=dict)
    found: float | None = None
    minimal: float | None = None
    cases: int = 0
    notices: list[str] = field(default_factory=list)


def config(witness: Witness, corpus: Path, cases: int, scale: Scale) -> RunConfig:
    return config_of(
        f"kfuzz.contracts.witnesses.{witness.module}:{witness.kernel}",
        root=ROOT, corpus=corpus, seed=SEED, max_time=SECONDS, max_cases=cases,
        device="cuda", scale=scale,
    )  # fmt: skip


def searched(
    witness: Witness,
    corpus: Path,
    *,
    cases: int,
    contracts: frozenset[str],
    scale: Scale = Scale.USUAL,
) -> Seen:
    """Run a kernel until it is confirmed that it breaks one of some classes."""
    stop, seen, start = threading.Event(), Seen(), time.monotonic()
    for event in run(config(witness, corpus, cases, scale), stop=stop):
        now = time.monotonic() - start
        if isinstance(event, Notice):
            seen.notices.append(event.message)
        elif isinstance(event, KernelFinished):
            seen.cases = event.cases
        elif isinstance(event, FindingSaved):
            seen.findings[event.path] = event.finding
            if event.finding.signature.contract not in contracts:
                continue
            seen.found = now if seen.found is None else seen.found
            if event.stage == "done" and event.finding.state is State.CONFIRMED:
                seen.minimal = now
                stop.set()
    return seen


def row(fault: Fault, seen: Seen) -> str:
    """Return a line of the table."""
    right = [
        f for f in seen.findings.values() if f.signature.contract in fault.contracts
    ]
    found = right[-1] if right else next(iter(seen.findings.values()), None)
    told, minimum = "nothing", "-"
    if found is not None:
        told = f"{found.signature.contract} {found.signature.kind} {found.state}"
        shapes = [f"{s.dtype}{list(s.shape)}" for s in found.case.tensors.values()]
        minimum = f"{', '.join(shapes)}: {found.failure.message}"
    times = [f"{t:.1f}" if t is not None else "-" for t in (seen.found, seen.minimal)]
    cells = (fault.text, fault.form, fault.witness.kernel, told, seen.cases, *times)
    return f"| {' | '.join(map(str, cells))} | {minimum.replace('|', '/')} |"


def summary(seen: Seen) -> str:
    """Return what was seen instead, for the message of a failed assertion."""
    lines = [
        f"{f.signature} {f.state}: {f.failure.message}\n{f.failure.trace[-1500:]}"
        for f in seen.findings.values()
    ]
    return "\n".join([f"{seen.cases} cases", *lines, *seen.notices])


def name_of(fault: Fault) -> str:
    large = "-large" if fault.scale is Scale.LARGE else ""
    return f"{fault.witness.kernel}{large}"


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_it_is_falsified_and_minimal(
    fault: Fault, tmp_path: Path, record_property
) -> None:
    witness = fault.witness
    seen = searched(
        witness, tmp_path, cases=CASES, contracts=fault.contracts, scale=fault.scale
    )
    record_property(FALSIFIED, row(fault, seen))
    assert seen.minimal is not None, summary(seen)
    minimum = next(
        f
        for f in seen.findings.values()
        if f.signature.contract in fault.contracts and f.state is State.CONFIRMED
    )
    if fault.scale is Scale.LARGE:  # kept as it was found
        return
    if fault.text not in OF_CHANCE:
        least = ON_GPU[witness.kernel]
        assert minimum.input_elements <= least.elements, (
            f"{least.text}; got {minimum.case}"
        )
    assert minimum.nonzero_elements is not None


@pytest.mark.parametrize(
    "fault", [f for f in FAULTS if f.text not in OF_CHANCE], ids=name_of
)
def test_it_passes_the_plain_functional_test(fault: Fault) -> None:
    assert passes_functional(fault.witness, device="cuda")


@pytest.mark.parametrize("witness", CONFORMING, ids=lambda w: w.kernel)
def test_correct_twins_are_clean(witness: Witness, tmp_path: Path) -> None:
    assert passes_functional(witness, device="cuda")
    seen = searched(witness, tmp_path, cases=TWIN_CASES, contracts=frozenset())
    assert not seen.findings, summary(seen)
    assert seen.cases >= min(TWIN_CASES, 50), summary(seen)
    assert not [n for n in seen.notices if "could not be judged" in n], summary(seen)
