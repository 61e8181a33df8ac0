"""Branches of a kernel's file on a GPU: the wrapper's count, a compiled body's not."""

import sys
import threading
from pathlib import Path

import pytest

from kfuzz.core.budget import Budget
from kfuzz.core.event import Event, KernelFinished, Notice
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.campaign import run

pytestmark = [pytest.mark.gpu]

# The branch at line 11 is compiled; those of the wrapper begin at lines 19 and 21.
KERNEL = """\
import torch
import triton
import triton.language as tl
from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops

@triton.jit
def body(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if BLOCK == 7:
        i += 1
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, tl.where(v < 0, v * 0, v), mask=i < n)

@kernel(ops.relu, layouts="contiguous", nonfinite="undefined", dtypes=("float32",))
def wrapped(x):
    y = torch.empty_like(x)
    if x.dim() == 9:
        return x
    if x.numel():
        body[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
"""


def test_the_wrappers_branches_are_known(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    path = tmp_path / "kernels.py"
    path.write_text(KERNEL)
    config = RunConfig(
        targets=(str(path),),
        root=tmp_path,
        corpus=tmp_path / "corpus",
        seed=3,
        budget=Budget(max_time=None, max_cases=40),
        device="cuda",
    )
    events: list[Event] = list(run(config, stop=threading.Event()))
    [finished] = [e for e in events if isinstance(e, KernelFinished)]
    assert not finished.findings, finished.findings
    notices = [e.message for e in events if isinstance(e, Notice)]
    told = [text for text in notices if "branch" in text]
    if sys.version_info < (3, 12):
        assert told == [], notices
    else:
        expected = "1 of 2 branches in kernels.py never ran: line 19"
        assert told == [expected], notices
