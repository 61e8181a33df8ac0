"""The line of a finding, asked of a child under a time limit."""

from pathlib import Path

import pytest

from kfuzz.core.event import FindingSaved
from kfuzz.engine.search.found import line_of
from kfuzz.engine.workers.zygotes import Backend
from kfuzz.targets.load import Source, load
from tests.helpers.searches import searched

SLOW = """
import time

import torch

import kfuzz
from kfuzz.contracts import operators as ops


@kfuzz.kernel(ops.relu)
def wrong(x):
    time.sleep(0.2)
    more = torch.tanh(x * 3 + 1) / 5
    less = torch.sigmoid(x - 4) * 7
    return (x + more - less).to(x.dtype)
"""


@pytest.mark.slow
def test_what_is_known_as_its_time_ends_arrives(tmp_path: Path) -> None:
    """The call that the end cuts short takes longer, and is no reason to lose all."""
    file = tmp_path / "kernels.py"
    file.write_text(SLOW)
    events = searched(file, max_cases=3, max_findings=1, locate=False)
    found = [e.finding for e in events if isinstance(e, FindingSaved)][-1]
    [loaded] = load(Source(file=file), root=tmp_path)
    backend = Backend("cpu", isolate="process")
    try:
        located = line_of(
            loaded, found, backend, root=tmp_path, seconds=6.0, stopped=lambda: False
        )
    finally:
        backend.close()
    assert located.why.startswith("time ended after "), located
