"""The monitor's device gate on a GPU: no waiting, right copies, what a call costs."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import kfuzz
from kfuzz.features.monitor import DeviceGate, Violation
from kfuzz.features.monitor.gate_kernel import WARM
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
