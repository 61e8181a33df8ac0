"""The profile large on a GPU: what fails beyond 2^31 is found, twins are not."""

import threading
from pathlib import Path

import pytest

from kfuzz.core.budget import Scale
from kfuzz.core.event import Event, FindingSaved, KernelFinished, Notice
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import State, Verdict
from kfuzz.engine.config import ReplayConfig, ReplayOutcome
from kfuzz.engine.replay import replay
from kfuzz.store.corpus import Stored
from tests.helpers.searches import searched

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "tests" / "gpu" / "large_kernels.py"


def events_of(name: str, corpus: Path, **limits: int) -> list[Event]:
    return searched(
        f"{KERNELS}::{name}",
        root=ROOT, corpus=corpus, seed=3, max_time=100.0, device="cuda",
        scale=Scale.LARGE, **limits,
    )  # fmt: skip


def finding_of(name: str, corpus: Path) -> Finding:
    """Return the one finding, confirmed; fail with what was seen if there is none."""
    events = events_of(name, corpus, max_cases=12, max_findings=1)
    done = [e.finding for e in events if isinstance(e, FindingSaved)]
    seen = [(f.id, str(f.state), f.failure.message) for f in done]
    notices = [e.message for e in events if isinstance(e, Notice)]
    confirmed = [f for f in done if f.state is State.CONFIRMED]
    assert confirmed, f"found {seen}; notices {notices}; end {events[-2:]}"
    return confirmed[-1]


def test_an_offset_of_32_bits_is_found(tmp_path: Path) -> None:
    finding = finding_of("add_int32", tmp_path)
    shapes = [s.shape for s in finding.case.tensors.values()]
    assert finding.case.large, (finding.failure.message, shapes)
    assert max(s.numel for s in finding.case.tensors.values()) > 1 << 31
    # What lies where a negative offset leads decides how it shows.
    wanted = {"K-LIV-01", "K-MEM-01", "K-MEM-03", "C-CMP-03"}
    assert finding.signature.contract in wanted, finding.failure.message
    stored = Stored(finding, tmp_path / finding.folder)
    config = ReplayConfig(root=ROOT, corpus=tmp_path, times=1)
    [result] = replay([stored], config, stop=threading.Event())
    assert result.outcome is ReplayOutcome.FAILS, result.message


def test_a_grid_of_too_many_rows_is_found(tmp_path: Path) -> None:
    finding = finding_of("rows_in_y", tmp_path)
    assert finding.signature.contract == "K-LIV-01", finding.failure.message
    rows = finding.case.elements // finding.case.lead.shape[-1]
    assert rows > 65_535, [s.shape for s in finding.case.tensors.values()]


@pytest.mark.parametrize("name", ["add_int64", "rows_in_x", "torch_softmax"])
def test_correct_twins_are_not(name: str, tmp_path: Path) -> None:
    events = events_of(name, tmp_path, max_cases=5)
    [finished] = [e for e in events if isinstance(e, KernelFinished)]
    found = [(f.id, f.failure.message) for f in finished.findings]
    notices = [e.message for e in events if isinstance(e, Notice)]
    assert not found, (found, notices)
    values = finished.contracts["K-VAL-01"]
    assert values.verdict is Verdict.CONFORMS, (values, notices, finished.refusals)
