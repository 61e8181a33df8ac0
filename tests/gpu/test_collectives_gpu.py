"""C-ORD-03 on two GPUs: a kernel beside an all-reduce of its result before."""

from pathlib import Path

import pytest
import torch

from kfuzz.core.event import Event, FindingSaved, KernelFinished, Notice
from kfuzz.core.verdict import State
from kfuzz.execution.device import collectives
from tests.helpers.searches import searched

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(collectives.unavailable(torch.cuda.device_count())),
        reason="needs two GPUs and NCCL",
    ),
]

KERNELS = """
import torch
from kfuzz.contracts import kernel, operators as ops

KEPT = {}

@kernel(ops.relu, dtypes=("float32",))
def keeps_its_result(x):
    key = tuple(x.shape)
    if key not in KEPT:
        KEPT[key] = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    torch.cuda._sleep(2_000_000)
    return KEPT[key].copy_(torch.relu(x))

@kernel(ops.relu, dtypes=("float32",))
def returns_fresh_memory(x):
    torch.cuda._sleep(2_000_000)
    return torch.relu(x).contiguous()
"""


def events_of(name: str, folder: Path) -> list[Event]:
    (folder / "kernels.py").write_text(KERNELS)
    return searched(
        f"{folder / 'kernels.py'}::{name}",
        max_time=80.0, max_cases=10, max_findings=1, device="cuda",
        # What else a kept result breaks is charged first.
        contracts=("C-ORD-03", "K-VAL-01"),
    )  # fmt: skip


def test_a_result_that_the_next_call_overwrites_is_torn(tmp_path: Path) -> None:
    events = events_of("keeps_its_result", tmp_path)
    found = [e.finding for e in events if isinstance(e, FindingSaved)]
    told = [e.message for e in events if isinstance(e, Notice)]
    assert found, (told, events[-2])
    assert found[-1].signature.contract == "C-ORD-03", found[-1].failure.message
    assert found[-1].state is State.CONFIRMED, found[-1].history


def test_fresh_results_are_not(tmp_path: Path) -> None:
    events = events_of("returns_fresh_memory", tmp_path)
    [finished] = [e for e in events if isinstance(e, KernelFinished)]
    notes = [n.note for n in finished.notes]
    assert finished.findings == (), finished.findings
    assert not any("collective" in note for note in notes), notes
