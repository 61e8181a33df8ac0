"""That a library imports torch's tracer costs bursts nothing; that it traced does."""

import collections
import sys
from types import SimpleNamespace

import pytest

from kfuzz.execution.calls.batches import has_traced


@pytest.mark.parametrize(("frames", "expected"), [(0, False), (2, True)])
def test_only_what_was_traced_counts(
    monkeypatch: pytest.MonkeyPatch, frames: int, expected: bool
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    counters = collections.defaultdict(
        collections.Counter, {"frames": {"total": frames}}
    )
    tracer = SimpleNamespace(counters=counters)
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", tracer)
    assert has_traced() is expected
