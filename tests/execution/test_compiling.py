"""A compilation beats the pulse; what does not compile leaves it alone."""

import threading
from typing import Any

import pytest

from kfuzz.execution.calls import compiling

knobs = pytest.importorskip("triton").knobs


def test_the_pulse_beats_from_the_start_of_a_compilation_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiling, "EVERY_SECONDS", 0.001)
    earlier: list[str] = []
    runtime: Any = knobs.runtime
    monkeypatch.setattr(runtime, "jit_cache_hook", lambda **_: earlier.append("begin"))
    monkeypatch.setattr(runtime, "jit_post_compile_hook", None)
    beats = threading.Semaphore(0)
    compiling.beat_while_compiling(beats.release)
    assert not beats.acquire(blocking=False)
    for _ in range(2):  # the second without an end to the first: it raised
        assert not runtime.jit_cache_hook(key="k")
        assert all(beats.acquire(timeout=10) for _ in range(3))
    assert earlier == ["begin", "begin"]
    runtime.jit_post_compile_hook(key="k")
    for thread in threading.enumerate():
        if thread.name.startswith("compiling"):
            thread.join(timeout=10)
            assert not thread.is_alive()


def test_a_compilation_that_never_ends_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiling, "EVERY_SECONDS", 0.001)
    monkeypatch.setattr(compiling, "LONGEST_SECONDS", 0.01)
    runtime: Any = knobs.runtime
    monkeypatch.setattr(runtime, "jit_cache_hook", None)
    monkeypatch.setattr(runtime, "jit_post_compile_hook", None)
    compiling.beat_while_compiling(lambda: None)
    runtime.jit_cache_hook(key="k")
    for thread in threading.enumerate():
        if thread.name.startswith("compiling"):
            thread.join(timeout=10)
            assert not thread.is_alive()
