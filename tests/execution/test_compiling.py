"""A compilation beats the pulse; what does not compile leaves it alone."""

import threading
from typing import Any

import pytest

from kfuzz.execution.calls import compiling
from kfuzz.execution.calls.compiling import by_kernel

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
    compiling.watch(compiling.Watchdog(beats.release))
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
    compiling.watch(compiling.Watchdog())
    runtime.jit_cache_hook(key="k")
    for thread in threading.enumerate():
        if thread.name.startswith("compiling"):
            thread.join(timeout=10)
            assert not thread.is_alive()


@pytest.fixture(autouse=True)
def seen(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return whether a compilation was under way, at each change."""
    runtime: Any = knobs.runtime
    monkeypatch.setattr(runtime, "jit_cache_hook", None)
    monkeypatch.setattr(runtime, "jit_post_compile_hook", None)
    monkeypatch.setattr(compiling, "_watchdogs", [])
    changes: list[bool] = []
    compiling.watch(compiling.Watchdog(compiling=changes.append))
    return changes


def compiles(*, ends: bool = True) -> None:
    """Do as Triton does around a compilation."""
    runtime: Any = knobs.runtime
    assert not runtime.jit_cache_hook(key="k")
    if not ends:
        raise RuntimeError("does not compile")
    runtime.jit_post_compile_hook(key="k")


def test_a_compilation_in_a_call_is_under_way_until_it_ends(seen: list[bool]) -> None:
    with by_kernel():
        seen.clear()
        compiles()
        assert seen == [True, False]
        with compiling.at_work():
            assert seen[-1]
        assert not seen[-1]


def test_a_compilation_that_raises_ends_with_its_call(seen: list[bool]) -> None:
    with pytest.raises(RuntimeError), by_kernel():
        compiles(ends=False)
    assert True in seen
    assert not seen[-1]


def test_hooks_are_placed_once(seen: list[bool]) -> None:
    compiling.watch_compilations()
    compiles()
    assert seen == [True, False]
