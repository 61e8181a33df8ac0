"""The monitor on a GPU: streams, pinned memory, in-place kernels, no waiting."""

import threading
from typing import Any

import pytest
import torch
from torch import Tensor

import kfuzz
from kfuzz.features.monitor import Violation
from tests.gpu.waits import raising_waits
from tests.helpers import monitors
from tests.helpers.monitors import SECONDS, settled

pytestmark = [
    pytest.mark.gpu,
    # Torch's own, of what inductor imports.
    pytest.mark.filterwarnings("ignore:`torch.jit.script"),
]
# Long enough for a copy that is not ordered after it to come too early.
BUSY_CYCLES = 20_000_000
fresh = monitors.fresh


def doubled(x: Tensor) -> Tensor:
    return x * 2.0


def monitored(name: str, told: list[Violation], **claims: Any) -> Any:
    return kfuzz.monitor(
        doubled, rate=1.0, name=name, on_violation=told.append, **claims
    )


def test_a_call_that_is_looked_at_does_not_synchronise() -> None:
    told: list[Violation] = []
    function = monitored("quiet", told)(doubled)
    x = torch.randn(257, 33, device="cuda")
    function(x)  # pinned memory and the stream are made once
    settled(function)
    with raising_waits():
        for view in (x, x.t(), x[:, ::2], x[:1].expand(9, 33), x[0, 0]):
            for _ in range(5):
                y = function(view)
                y.zero_()
    found = settled(function)
    assert not told, told[0].message
    assert (found.checked, found.errors, found.outside) == (26, 0, 0), found


def test_inputs_are_those_of_the_call_whatever_follows_on_the_stream() -> None:
    told: list[Violation] = []
    function = monitored("ordered", told)(doubled)
    stream = torch.cuda.Stream()
    x = torch.zeros(1 << 16, device="cuda")
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for i in range(10):
            torch.cuda._sleep(BUSY_CYCLES)
            x.fill_(float(i + 1))  # late: a copy that does not wait sees the last
            y = function(x)
            x.fill_(-1.0)
            y.fill_(-1.0)
    found = settled(function)
    assert not told, told[0].message
    assert found.checked == 10, found


def test_the_values_told_are_those_before_an_in_place_kernel() -> None:
    told: list[Violation] = []

    def half_wrong(x: Tensor) -> Tensor:
        x.mul_(2.0)
        x[1:].add_(1.0)
        return x

    function = kfuzz.monitor(
        lambda x: x.mul_(2.0), rate=1.0, name="in_place", inplace="x",
        on_violation=told.append,
    )(half_wrong)  # fmt: skip
    x = torch.full((4,), 3.0, device="cuda")
    with raising_waits():
        function(x)
    found = settled(function)
    assert found.violations == 1, found
    [violation] = told
    assert violation.values is not None
    assert violation.values["x"].tolist() == [3.0] * 4
    assert (violation.actual, violation.expected) == (7.0, 6.0), violation.message
    assert violation.inputs["x"].device == "cuda:0"


def test_an_input_that_is_overwritten_on_the_device_is_seen() -> None:
    told: list[Violation] = []

    def overwriting(x: Tensor) -> Tensor:
        y = x * 2.0
        x.view(-1)[5:7] = 0.0
        return y

    function = monitored("overwriting", told)(overwriting)
    x = torch.randn(4, 4, device="cuda")
    with raising_waits():
        function(x)
    settled(function)
    assert [v.contract for v in told] == ["K-MEM-03"], told
    assert told[0].index == (1, 1), told[0].message


def test_full_pinned_memory_drops_calls_and_the_caller_goes_on() -> None:
    from kfuzz.features.monitor.runtime import runtime

    release = threading.Event()

    def slow(x: Tensor) -> Tensor:
        release.wait(SECONDS)
        return x * 2.0

    kfuzz.monitor.start(ring_bytes=1 << 20, pending=64)
    function = kfuzz.monitor(slow, rate=1.0, name="slow")(doubled)
    x = torch.randn(1 << 15, device="cuda")  # 128 KiB, twice a call
    function(x)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    try:
        for _ in range(300):
            y = function(x)
        torch.cuda.synchronize()
        used = runtime.memory.used
        held = torch.cuda.memory_allocated() - before - y.nbytes
    finally:
        release.set()
    found = settled(function)
    assert used <= 1 << 20
    assert held <= 8 << 20, "clones are kept although nothing is pending"
    assert found.dropped > 280, found
    assert found.checked + found.dropped == 301, found
    assert found.violations == found.errors == 0, found
    assert runtime.memory.used == 0


def test_calls_are_skipped_while_a_graph_is_captured() -> None:
    told: list[Violation] = []
    function = monitored("captured", told)(doubled)
    x = torch.randn(64, device="cuda")
    for _ in range(20):  # their checks go on meanwhile, and must not end the capture
        function(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = function(x)
    x.fill_(4.0)
    graph.replay()
    torch.cuda.synchronize()
    assert y.tolist() == [8.0] * 64
    found = settled(function)
    assert (found.skipped, found.checked, found.errors) == (1, 20, 0), found


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_code_is_judged_without_graph_breaks(backend: str) -> None:
    told: list[Violation] = []
    right = kfuzz.monitor("softmax", rate=1.0, name=f"right_{backend}")(
        lambda x, dim=-1: torch.softmax(x, dim)
    )
    wrong = kfuzz.monitor(
        "softmax", rate=1.0, name=f"wrong_{backend}", on_violation=told.append
    )(lambda x, dim=-1: torch.softmax(x, dim) * 1.01)

    def step(x: Tensor) -> Tensor:
        return wrong(right(torch.sin(x), dim=-1) + 1.0).square().sum()

    torch._dynamo.reset()
    compiled = torch.compile(step, backend=backend, fullgraph=True)
    for rows in (64, 64, 65):
        x = torch.randn(rows, 128, device="cuda", requires_grad=True)
        compiled(x).backward()
        assert x.grad is not None
        assert bool(torch.isfinite(x.grad).all())
    good, bad = settled(right), settled(wrong)
    assert (good.checked, good.violations, good.errors) == (3, 0, 0), good
    assert (bad.checked, bad.violations, bad.errors) == (3, 3, 0), bad
    assert {str(v.kind) for v in told} == {"value"}
