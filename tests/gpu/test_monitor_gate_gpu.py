"""The monitor's device gate on a GPU: no waiting, right copies, what a call costs."""

import math
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
from torch import Tensor

import kfuzz
from kfuzz.judge.sandbox.inside import triton_launches
from kfuzz.monitor import DeviceGate, Violation
from kfuzz.monitor.gate.gate_kernel import WARM
from tests.gpu.waits import raising_waits
from tests.helpers import monitors
from tests.helpers.monitors import settled

pytestmark = pytest.mark.gpu
BUSY_CYCLES = 20_000_000
fresh = monitors.fresh


def doubled(x: Tensor) -> Tensor:
    return x * 2.0


def gated(told: list[Violation], function: Any = doubled, **given: Any) -> Any:
    return kfuzz.monitor(
        doubled, rate=0.0, signatures=False, name="gated",
        on_violation=told.append, device_gate=DeviceGate(**given),
    )(function)  # fmt: skip


def test_an_outlier_is_found_without_waiting_whatever_follows_it() -> None:
    told: list[Violation] = []

    def wrong_far_out(x: Tensor) -> Tensor:
        return torch.where(x > 50.0, x, x * 2.0)

    function = gated(told, wrong_far_out)
    draw = torch.Generator("cuda").manual_seed(0)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):  # compile
        function(torch.randn(513, 65, device="cuda", generator=draw).to(dtype))
    torch.cuda.synchronize()
    data = [
        torch.randn(513, 65, device="cuda", generator=draw) for _ in range(WARM.value)
    ]
    bad = data[0].clone()
    bad[100, 7] = 1000.0
    with raising_waits():
        for x in data:
            function(x)
        torch.cuda._sleep(BUSY_CYCLES)
        x = bad.clone()
        y = function(x)
        x.fill_(-1.0)
        y.fill_(-1.0)
    found = settled(function)
    assert found.errors == found.skipped == 0, found
    assert found.outliers <= 4, f"ordinary calls were flagged: {found}"
    assert len(told) == 1, (found, [v.message for v in told])
    assert told[0].values is not None
    assert torch.equal(told[0].values["x"], bad.cpu()), "the copy came too late"
    assert told[0].index == (100, 7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_special_values_are_found_in_every_layout(dtype: torch.dtype) -> None:
    told: list[Violation] = []
    function = gated(told, room_bytes=64 << 20)
    base = torch.ones(300, 1001, device="cuda", dtype=dtype)
    base[299, 1000] = math.nan
    views = (base, base.t(), base[-1], base[299:, 1000:], base.view(300, 7, 143))
    with_nan = 0
    for view in views:
        function(view)
        with_nan += 1
        settled(function)
    function(torch.empty(0, 3, device="cuda", dtype=dtype))
    found = settled(function)
    assert (found.outliers, found.checked) == (with_nan, with_nan), found
    assert not told, told[0].message
    function(base[:, ::2])  # has gaps
    assert settled(function).skipped == 1, settled(function)


def test_streams_have_statistics_of_their_own_and_no_slot_is_shared() -> None:
    told: list[Violation] = []
    function = gated(told, slots=2)
    streams = [torch.cuda.Stream() for _ in range(3)]
    for i in range(10):
        for k, stream in enumerate(streams):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                x = torch.full((1 << 12,), float(i + 10 * k), device="cuda")
                x[k] = math.inf
                function(x)
                x.fill_(-1.0)
    found = settled(function)
    assert not told, told[0].message
    assert found.outliers == 30, found
    assert found.checked + found.dropped == 30, found
    assert found.checked >= 3, found


def test_a_raising_call_and_one_that_fits_no_slot_leave_the_gate_working() -> None:
    told: list[Violation] = []

    def raising(x: Tensor) -> Tensor:
        if x.shape[0] == 3:
            raise ValueError("its own")
        return x * 2.0

    function = gated(told, raising, slots=1, room_bytes=1 << 16)
    bad = torch.full((3,), math.inf, device="cuda")
    for _ in range(5):
        with pytest.raises(ValueError, match="its own"):
            function(bad)
        settled(function)
    function(torch.full((1 << 16,), math.inf, device="cuda"))
    function(torch.full((4,), math.inf, device="cuda"))
    found = settled(function)
    assert (found.raised, found.checked, found.errors) == (5, 1, 0), found


def test_a_graph_under_capture_is_left_alone() -> None:
    function = gated([])
    x = torch.ones(64, device="cuda")
    for _ in range(3):
        function(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = function(x)
    graph.replay()
    torch.cuda.synchronize()
    assert y.tolist() == [2.0] * 64
    assert settled(function).errors == 0


@triton.jit
def nothing(x_ptr):  # type: ignore[no-untyped-def]
    """Do nothing."""


def microseconds(call: Callable[[], object]) -> float:
    """Return what a call costs on the host, the least of several means."""
    best = math.inf
    for _ in range(20):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(50):
            call()
        best = min(best, (time.perf_counter() - begin) / 50)
    return best * 1e6


@pytest.mark.parametrize("size", [1 << 10, 1 << 20, 1 << 24])
def test_what_a_call_costs_on_the_host(
    size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Printed and not asserted; the bound of the whole gate is 30 us."""

    def same(x: Tensor) -> Tensor:
        return x

    function = gated([], same, special=False, room_bytes=1 << 29, share=1e-6)
    x = torch.randn(size, device="cuda")
    for i in range(WARM.value):  # x is usual among these, so that no call is checked
        function(x * 2.0 ** (i % 5 - 2))
    torch.cuda.synchronize()
    small = torch.zeros(8, device="cuda")
    with torch.cuda.device(x.device):
        empty = nothing.warmup(small, grid=(1, 1, 1))[1, 1, 1]
    costs = {
        "plain call": microseconds(lambda: same(x)),
        "whole gate": microseconds(lambda: function(x)),
        "empty kernel": microseconds(lambda: empty(small.data_ptr())),
        "torch.add of 8": microseconds(lambda: torch.add(small, 1.0)),
    }
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    marks[0].record()
    for _ in range(50):
        function(x)
    marks[1].record()
    torch.cuda.synchronize()
    on_device = marks[0].elapsed_time(marks[1]) / 50 * 1e3
    found = settled(function)
    told = ", ".join(f"{name} {cost:.1f}" for name, cost in costs.items())
    with capsys.disabled():
        sys.stdout.write(
            f"\ndevice gate, {size} float32, us on the host: {told}; "
            f"{on_device:.1f} from call to call; {found.outliers} flagged\n"
        )
    assert found.errors == found.skipped == found.violations == 0, found


def test_copies_are_whole_whatever_three_streams_overwrite() -> None:
    """Every finding holds what was passed, and nothing that was written later."""
    size, every = 30_011, 20

    def wrong_far_out(x: Tensor) -> Tensor:
        return torch.where(x > 50.0, x, x * 2.0)

    told: list[Violation] = []
    function = gated(told, wrong_far_out, slots=2, share=0.1)
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    for n in range(2000):
        with torch.cuda.stream(streams[n % 3]):
            x = torch.full((size,), 1.0 + n % 100 / 128, device="cuda")
            if n % every == 0:
                x[n] = 1000.0 + n
            y = function(x)
            x.fill_(-1.0)
            y.fill_(-1.0)
        if n % 100 == 99:
            settled(function)  # slots are free again
    found = settled(function)
    assert found.errors == found.skipped == 0, found
    assert found.checked + found.dropped == found.outliers, found
    assert len(told) == found.violations >= 10, found
    for violation in told:
        assert violation.values is not None
        x = violation.values["x"]
        n = round(float(x.max())) - 1000
        wanted = torch.full((size,), 1.0 + n % 100 / 128)
        wanted[n] = 1000.0 + n
        others = (x != wanted).nonzero().flatten().tolist()
        assert not others, (n, len(others), others[:5], x[others[:5]].tolist())
        assert violation.index == (n,), violation.message
        assert violation.actual == 1000.0 + n, violation.message


def test_hooks_of_triton_see_the_launches() -> None:
    function = gated([])
    x = torch.ones(64, device="cuda")
    for _ in range(2):
        function(x)
    names: dict[str, None] = {}
    with triton_launches(names):
        function(x)
    assert list(names) == ["decide", "keep_results"], names
    assert settled(function).errors == 0


def test_tf32_of_the_process_is_no_violation_of_a_plain_reference() -> None:
    told: list[Violation] = []

    def product(x: Tensor, w: Tensor) -> Tensor:
        return x @ w

    def convolved(x: Tensor, w: Tensor) -> Tensor:
        return torch.conv2d(x, w)

    made = [
        kfuzz.monitor(f, rate=1.0, on_violation=told.append, name=f.__name__)(f)
        for f in (product, convolved)
    ]
    x, w = torch.randn(256, 512, device="cuda"), torch.randn(512, 256, device="cuda")
    image = torch.randn(2, 16, 32, 32, device="cuda")
    weight = torch.randn(32, 16, 3, 3, device="cuda")
    before = torch.get_float32_matmul_precision()
    try:
        for precision in ("highest", "high", "medium"):
            torch.set_float32_matmul_precision(precision)
            made[0](x, w)
            made[1](image, weight)
    finally:
        torch.set_float32_matmul_precision(before)
    counts = [settled(f) for f in made]
    assert not told, [(v.function, v.message) for v in told]
    assert [c.checked for c in counts] == [3, 3], counts
