"""Where the time of a request goes, and what counts as compiling."""

import sys
import time
from typing import Any

import pytest
from triton import knobs

from kfuzz.execution.calls import compiling
from kfuzz.execution.calls.compiling import Phases, by_kernel

A_WHILE = 0.02


@pytest.fixture(autouse=True)
def hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave Triton's hooks as they were."""
    runtime: Any = knobs.runtime
    monkeypatch.setattr(runtime, "jit_cache_hook", None)
    monkeypatch.setattr(runtime, "jit_post_compile_hook", None)
    monkeypatch.setattr(knobs.compilation, "listener", None)
    assert "triton" in sys.modules


def compiles(*, cached: bool = False, ends: bool = True) -> None:
    """Do as Triton does around a compilation."""
    runtime: Any = knobs.runtime
    compilation: Any = knobs.compilation
    assert not runtime.jit_cache_hook(key="k")
    time.sleep(A_WHILE)
    if not ends:
        raise RuntimeError("does not compile")
    compilation.listener(src=None, cache_hit=cached)
    runtime.jit_post_compile_hook(key="k")


def test_a_request_is_divided_into_compiling_calling_and_the_rest() -> None:
    phases = Phases()
    phases.begin()
    time.sleep(A_WHILE)
    with by_kernel():
        compiles()
        time.sleep(3 * A_WHILE)
    spent = phases.end()
    assert spent.compiled == 1
    assert spent.compiling >= A_WHILE
    assert spent.calling >= 3 * A_WHILE
    assert spent.rest >= A_WHILE
    assert spent.running == spent.calling + spent.rest


def test_a_compilation_that_raises_ends_with_its_call() -> None:
    phases = Phases()
    phases.begin()
    with pytest.raises(RuntimeError), by_kernel():
        compiles(ends=False)
    time.sleep(3 * A_WHILE)
    spent = phases.end()
    assert spent.compiling >= A_WHILE
    assert spent.rest >= 3 * A_WHILE


def test_what_is_built_in_a_call_counts_as_compiling() -> None:
    phases = Phases()
    phases.begin()
    with by_kernel(), compiling.at_work():
        time.sleep(A_WHILE)
    spent = phases.end()
    assert spent.compiling >= A_WHILE
    assert spent.compiled == 1
