"""Launches of compiled kernels past what finds them, with a stand-in for one."""

from typing import Any

import pytest
import torch
from triton import knobs

from kfuzz.monitor.gate.direct_launch import direct


class Compiled:
    """Notes what it is launched with, as a compiled kernel of Triton's is."""

    function, packed_metadata = 1234, ("packed",)

    def __init__(self) -> None:
        self.runs: list[tuple[Any, ...]] = []
        self.observed: list[tuple[Any, ...]] = []

    def run(self, *given: Any) -> None:
        self.runs.append(given)

    def __getitem__(self, grid: tuple[int, int, int]) -> Any:
        def launch(*given: Any, stream: int) -> None:
            self.observed.append((grid, stream, *given))

        return launch


class Kernel:
    """Compiles to a given kernel."""

    __name__ = "kernel"

    def __init__(self, compiled: Compiled | None) -> None:
        self.compiled = compiled
        self.asked: list[Any] = []

    def warmup(self, *given: Any, **options: Any) -> Compiled | None:
        self.asked.append((given, options))
        return self.compiled


def test_launches_pass_addresses_and_show_themselves_to_hooks() -> None:
    compiled = Compiled()
    kernel = Kernel(compiled)
    x, memory = torch.zeros(3), torch.zeros(5)
    launch = direct(kernel, (x, 2), (memory, 7), (4, 1, 1), 99, {"num_warps": 8})
    assert kernel.asked == [((x, 2, memory, 7), {"grid": (4, 1, 1), "num_warps": 8})]
    assert not compiled.runs
    launch(5000, 3)
    given = (5000, 3, memory.data_ptr(), 7)
    head = (4, 1, 1, 99, 1234, ("packed",), None, None, None)
    assert compiled.runs == [head + given]
    chain, hook = knobs.runtime.launch_enter_hook, lambda metadata: None
    chain.add(hook)
    try:
        launch(5000, 3)
    finally:
        chain.remove(hook)
    assert compiled.observed == [((4, 1, 1), 99, *given)]
    launch(5000, 3)
    assert (len(compiled.runs), len(compiled.observed)) == (2, 1)


def test_what_a_hook_keeps_from_compiling_is_told() -> None:
    with pytest.raises(RuntimeError, match="kernel was not compiled"):
        direct(Kernel(None), (), (), (1, 1, 1), 0, {})
