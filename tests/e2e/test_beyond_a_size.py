"""Faults that show only beyond a size, in runs of seconds: where they end up."""

import threading
from pathlib import Path

import pytest

from kfuzz.core.dtypes import unpack_bits
from kfuzz.core.event import Event, FindingSaved, KernelFinished, Notice, RunFinished
from kfuzz.core.finding import Finding
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import State
from kfuzz.engine.search.campaign import run
from tests.helpers.searches import config_of, searched

pytestmark = pytest.mark.slow

KERNELS = """
import time

import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz.contracts import operators as ops

only = dict(dtypes=("float32",), nonfinite="undefined")


@kfuzz.kernel(ops.softmax, dims=(-1,), **only)
def columns(x, dim=-1):
    y = torch.softmax(x, dim)
    y[..., 1000:] = 0
    return y


@kfuzz.kernel(ops.sum, dims=(-1,), **only)
def terms(x, dim=-1):
    return x[..., :257].sum(dim)


@kfuzz.kernel(ops.softmax, dims=(-1,), **only)
def rows(x, dim=-1):
    y = torch.softmax(x, dim)
    y.reshape(-1, x.shape[-1])[257:] = 0
    return y


@triton.jit
def _relu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, tl.where(i < 1000, tl.maximum(x, 0.0), 0.0), mask=i < n)


@kfuzz.kernel(ops.relu, **only)
def elements(x):
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    x = x.contiguous()
    if x.numel():
        _relu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


@kfuzz.kernel(ops.sum, dims=(-1,), **only)
def slow(x, dim=-1):
    time.sleep(1.2 if x.shape[-1] > 600 else 0.0)
    return x[..., :257].sum(dim)
"""


def file_of(folder: Path) -> Path:
    (folder / "kernels.py").write_text(KERNELS, encoding="utf-8")
    return folder / "kernels.py"


def found(events: list[Event]) -> list[Finding]:
    return [
        e.finding for e in events if isinstance(e, FindingSaved) and e.stage == "done"
    ]


def nonzero(case: Case) -> int:
    values = [unpack_bits(s.values or b"", s.dtype) for s in case.tensors.values()]
    return sum(bool(bits) for each in values for bits in each)


@pytest.mark.parametrize(
    ("name", "threshold", "device"),
    [
        ("columns", 1000, "cpu"), ("terms", 257, "cpu"), ("rows", 257, "cpu"),
        ("elements", 1000, "interpret"),
    ],
)  # fmt: skip
def test_it_ends_one_above_the_threshold_at_a_few_values(
    name: str, threshold: int, device: str, tmp_path: Path
) -> None:
    [finding] = found(
        searched(
            f"{file_of(tmp_path)}::{name}", max_time=10.0, max_findings=1, seed=3,
            device=device, contracts=("K-VAL-*",),
        )
    )  # fmt: skip
    case = finding.case
    assert finding.state is State.CONFIRMED
    assert max(case.dims.values()) == case.elements == threshold + 1
    assert nonzero(case) <= 4


def test_a_slow_failing_case_is_confirmed_and_small(tmp_path: Path) -> None:
    """Most of what fails takes longer than a second."""
    events = searched(
        f"{file_of(tmp_path)}::slow", max_time=60.0, max_findings=1, seed=3,
        contracts=("K-VAL-*",),
    )  # fmt: skip
    [finding] = found(events)
    assert finding.state is State.CONFIRMED
    assert finding.case.elements == 258
    assert nonzero(finding.case) <= 4


def test_what_the_search_leaves_is_reduced_after_it_and_the_run_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfuzz.engine.search.found.FIRST_SECONDS", 0.0)
    monkeypatch.setattr("kfuzz.engine.search.found.FIRST_SHARE", 0.0)
    monkeypatch.setattr("kfuzz.engine.search.found.SLOW_SECONDS", 0.0)
    events = searched(
        f"{file_of(tmp_path)}::terms", max_time=5.0, seed=3, contracts=("K-VAL-*",)
    )
    findings = found(events)
    assert {(f.state, f.case.elements) for f in findings} == {(State.CONFIRMED, 258)}
    [note] = [e for e in events if isinstance(e, Notice) and "reducing" in e.message]
    what = "1 finding" if len(findings) == 1 else f"{len(findings)} findings"
    assert note.message == f"reducing {what}, at most 20 s"
    [kernel] = [e for e in events if isinstance(e, KernelFinished)]
    assert {f.id for f in kernel.findings} == {f.id for f in findings}
    [end] = [e for e in events if isinstance(e, RunFinished)]
    assert end.reducing_s > 0
    stored = [p.parent for p in tmp_path.glob("corpus/**/finding.json")]
    assert {*stored} == {tmp_path / "corpus" / f.folder for f in findings}


def test_an_interrupt_before_the_reducing_leaves_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfuzz.engine.search.found.FIRST_SECONDS", 0.0)
    monkeypatch.setattr("kfuzz.engine.search.found.FIRST_SHARE", 0.0)
    monkeypatch.setattr("kfuzz.engine.search.found.SLOW_SECONDS", 0.0)
    config = config_of(
        f"{file_of(tmp_path)}::terms", max_time=5.0, seed=3, contracts=("K-VAL-*",)
    )
    stop, events = threading.Event(), []
    for event in run(config, stop=stop):
        events.append(event)
        if isinstance(event, Notice) and "reducing" in event.message:
            stop.set()
    [finding] = found(events)
    assert finding.explanation is None or not finding.explanation.complete
    assert [*tmp_path.glob(f"corpus/{finding.folder}/finding.json")]
    [end] = [e for e in events if isinstance(e, RunFinished)]
    assert end.interrupted
