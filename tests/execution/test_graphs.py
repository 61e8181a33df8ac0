"""Captured and replayed calls, on a device that Python plays.

Work that is launched while a graph captures is kept for its replays, and nothing runs.
"""

import gc
import warnings
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.execution.calls.overlap import Overlapping
from kfuzz.execution.calls.results import Invocation
from kfuzz.execution.device import graphs
from kfuzz.execution.device.graphs import replayed
from kfuzz.execution.memory.poison import Poison
from kfuzz.numerics.run import Expected, Run

CASE = Case({"x": TensorSpec((4,), ("d0",), "float32", fill=Fill("randn"))})
ONE, TWO = torch.tensor([1.0, -1, 2, -2]), torch.tensor([-3.0, 3, -4, 4])
WAITS = "called a synchronizing CUDA operation"


class Graph:
    """One of them captures at a time."""

    capturing: "Graph | None" = None
    made: list["Graph"]

    def __init__(self) -> None:
        self.work: list[Callable[[], object]] = []
        self.invalid = self.was_reset = False
        Graph.made.append(self)

    def capture_begin(self, capture_error_mode: str) -> None:
        assert capture_error_mode == "thread_local"
        assert not gc.isenabled()
        Graph.capturing = self

    def capture_end(self) -> None:
        Graph.capturing = None
        if self.invalid:
            raise RuntimeError("capture was invalidated")
        if not self.work:
            warnings.warn("The CUDA Graph is empty.", stacklevel=2)

    def replay(self) -> None:
        for step in self.work:
            step()

    def reset(self) -> None:
        self.was_reset = True


def launch(step: Callable[[], object]) -> None:
    """Run work on the device, or keep it for the replays of a graph."""
    if Graph.capturing is None:
        step()
    else:
        Graph.capturing.work.append(step)


def wait() -> None:
    """Wait for the device, as a library does that torch knows nothing of."""
    if Graph.capturing is not None:
        Graph.capturing.invalid = True
        raise RuntimeError("operation not permitted when stream is capturing")


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    Graph.made, Graph.capturing = [], None
    played = {
        "CUDAGraph": Graph,
        "synchronize": lambda *_: None,
        "empty_cache": lambda: None,
        "device": lambda _: nullcontext(),
        "stream": lambda _: nullcontext(),
        "get_sync_debug_mode": lambda: 0,
        "set_sync_debug_mode": lambda _: None,
    }
    for name, fake in played.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(graphs, "_streams", {torch.device("cpu"): None})
    monkeypatch.setattr(graphs, "_failed", [])


def run(
    kernel: Callable[[Tensor], object], *, inplace: tuple[str, ...] = ()
) -> tuple[tuple[Run, ...], bool]:
    asked = Invocation(
        kernel, CASE, {"y": Expected((4,), torch.float32)}, alignment=16,
        around=Poison.NAN, inplace=inplace,
    )  # fmt: skip
    common = Overlapping(asked, torch.device("cpu"), Poison.NAN)
    return replayed(common, {"x": ONE}, [{"x": TWO}, {"x": ONE}])


def outputs(made: tuple[tuple[Run, ...], bool]) -> list[list[float]]:
    return [r.outputs["y"].tolist() for r in made[0]]


RIGHT = [torch.relu(TWO).tolist(), torch.relu(ONE).tolist()]


def relu(x: Tensor) -> Tensor:
    y = torch.full_like(x, torch.nan)
    launch(lambda: torch.clamp(x, min=0, out=y))
    return y


def test_replays_see_the_data_that_lie_there_then() -> None:
    assert outputs(run(relu)) == RIGHT
    assert Graph.made[0].was_reset
    assert gc.isenabled()


def test_what_the_host_kept_is_replayed() -> None:
    def keeping(x: Tensor) -> Tensor:
        kept = torch.relu(x)  # computed by the host: no work of the device's
        y = torch.full_like(x, torch.nan)
        launch(lambda: y.copy_(kept))
        return y

    assert outputs(run(keeping)) == [RIGHT[1], RIGHT[1]]


def test_a_kernel_that_waits_is_not_captured() -> None:
    def synchronizing(x: Tensor) -> Tensor:
        torch.cuda.synchronize()
        return relu(x)

    def reading(x: Tensor) -> Tensor:
        warnings.warn(WAITS, stacklevel=1)
        return relu(x)

    for kernel in (synchronizing, reading):
        assert run(kernel) == ((), False)
        assert Graph.made[-1].work == []
        assert Graph.made[-1].was_reset


def test_waiting_once_for_a_cache_is_no_obstacle() -> None:
    kept: list[float] = []

    def caching(x: Tensor) -> Tensor:
        if not kept:
            torch.cuda.synchronize()
            kept.append(1.0)
        return relu(x)

    assert outputs(run(caching)) == RIGHT


def test_a_capture_that_breaks_is_told_and_its_graph_is_kept() -> None:
    def unheard(x: Tensor) -> Tensor:
        wait()
        return relu(x)

    assert run(unheard) == ((), True)
    assert graphs._failed == Graph.made
    assert not Graph.made[0].was_reset
    assert gc.isenabled()


def test_a_kernel_that_refuses_to_be_captured_breaks_nothing() -> None:
    def refusing(x: Tensor) -> Tensor:
        if Graph.capturing is not None:
            raise NotImplementedError("no graphs")
        return relu(x)

    assert run(refusing) == ((), False)


def test_what_raises_on_the_device_is_no_evidence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(x: Tensor) -> Tensor:
        raise RuntimeError("an illegal memory access")

    assert run(failing) == ((), False)
    monkeypatch.setattr(graphs, "is_lost", lambda _: True)
    assert run(failing) == ((), True)
