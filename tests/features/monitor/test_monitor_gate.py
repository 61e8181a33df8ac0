"""The device gate: its statistic, its decision and its copies, in the interpreter."""

import functools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

import kfuzz
from kfuzz.core.errors import UsageError
from kfuzz.execution.interpreter.watch import interpreting
from kfuzz.features.monitor import DeviceGate, Violation
from kfuzz.features.monitor import monitored as gated
from tests.helpers import monitors
from tests.helpers.monitors import settled

fresh = monitors.fresh
CPU = torch.device("cpu")
interpreted = pytest.mark.skipif(
    not interpreting(), reason="Triton compiles kernels here"
)


# As in `gate_kernel`, which is imported with Triton alone.
WARM, FIRST, STEP = 100, 10, 0.5
LEAST, MOST_DISTANT = 1e-30, 1e30


class OnDevice:
    """Calls a monitored function as if its CPU tensors lay on a GPU."""

    def __init__(self, gate: DeviceGate, contract: Any, function: Any, **given: Any):
        from kfuzz.features.monitor.gate.device import Lane

        self.told: list[Violation] = []
        self.gate, self.function = gate, function
        self.made = kfuzz.monitor(
            contract, rate=0.0, signatures=False, device_gate=gate,
            name="on_device", on_violation=self.told.append, **given,
        )(function)  # fmt: skip
        self.lane = Lane(gate, CPU, 0)
        gate._lanes[None, 0] = self.lane

    def __call__(self, *args: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gated, "_is_on_gpu", lambda x: isinstance(x, Tensor))
            make = functools.partial(self.function, *args)
            return gated.gated(self.made.monitor, self.gate, make, 1)

    def warm(self) -> None:
        """Let the next call be one that can be flagged for its distance."""
        from kfuzz.features.monitor.gate import gate_kernel as at

        for half in (0, at.STATE.value):
            self.lane._numbers[half + at.CALLS.value] = float(WARM)


@pytest.mark.slow
@interpreted
def test_flagged_calls_are_copied_before_they_are_overwritten() -> None:
    def wrong_far_out(x: Tensor, i: Tensor) -> Tensor:
        y = x * i
        y[x > 50.0] += 1.0
        x.fill_(-1.0)  # as what follows the call does
        return y

    def reference(x: Tensor, i: Tensor) -> Tensor:
        return x * i

    gate = DeviceGate(slots=2, room_bytes=1 << 15)
    call = OnDevice(gate, reference, wrong_far_out)
    i = torch.arange(6)
    for n in range(11):
        call(torch.full((5, 6), 1.0 + n / 10).t().contiguous().t(), i[:6])
    call.warm()
    x = torch.ones(5, 6)
    x[2, 3] = 100.0
    call(x, i)
    y = torch.ones(5, 6)
    y[0, 0] = math.nan
    call(y, i)
    assert settled(call.made).outliers == 2
    assert call.made.monitor.statistics().checked == 2
    [violation] = call.told
    assert violation.index == (2, 3)
    assert violation.actual == 301.0
    assert violation.why == "outlier"
    assert violation.values is not None
    assert violation.values["x"][2].tolist() == [1.0, 1.0, 1.0, 100.0, 1.0, 1.0]
    assert violation.values["i"].tolist() == [0, 1, 2, 3, 4, 5]


@interpreted
def test_room_is_used_again_and_what_finds_none_is_counted() -> None:
    gate = DeviceGate(slots=1, room_bytes=1 << 12)
    call = OnDevice(gate, lambda x: x * 1.0, lambda x: x * 1.0)
    lane, bad = call.lane, torch.tensor([math.inf, 1.0])
    held: list[Any] = []
    gate.told_to(held.append)
    call(bad)
    call(bad * 1.0)  # its room is taken, and not given back
    assert [(t.flagged, t.lost, len(t.kept)) for t in held] == [(1, 0, 1), (1, 1, 0)]
    assert gate.poll()
    [underway] = held[0].kept
    (copy,), (result,) = underway.copies()
    assert copy.values.tolist() == result.values.tolist() == [math.inf, 1.0]
    lane.give(underway.slot)
    lane.give(underway.slot)  # twice changes nothing
    call(bad)
    assert (held[2].flagged, held[2].lost, len(held[2].kept)) == (1, 0, 1)
    lane.give(0)
    looked = gate.look([bad], CPU, 9)
    assert looked is not None
    gate.after(looked, None)  # it raised
    assert (held[3].flagged, held[3].unfit, held[3].kept) == (1, 1, ())
    call(bad)
    assert len(held[4].kept) == 1
    gate.told_to(lambda told: None)


@interpreted
def test_what_a_method_reads_from_its_owner_is_that_of_the_call() -> None:
    class Scaled:
        by = 3.0

        def forward(self, x: Tensor) -> Tensor:
            return x * self.by

    def annealed(owner: Scaled, x: Tensor) -> Tensor:
        y = owner.forward(x)
        owner.by += 1.0  # before anybody knows what the device decided
        return y

    gate = DeviceGate()
    call = OnDevice(
        gate, lambda x, by: x * by, annealed,
        arguments=lambda owner, x: {"x": x, "by": owner.by},
    )  # fmt: skip
    owner = Scaled()
    for number in range(3):
        call(owner, torch.tensor([1.0, math.inf]))
        assert settled(call.made).checked == number + 1
    assert not call.told, call.told[0].message
    wrong = OnDevice(
        DeviceGate(), lambda x, by: x * by, lambda owner, x: x * owner.by + 1.0,
        arguments=lambda owner, x: {"x": x, "by": owner.by},
    )  # fmt: skip
    wrong(owner, torch.tensor([1.0, math.inf]))
    assert settled(wrong.made).violations == 1


@interpreted
def test_calls_within_calls_keep_their_own_data() -> None:
    gate = DeviceGate(slots=2)
    call: Any = None

    def nested(x: Tensor) -> Tensor:
        if float(x[1]) < 3.0:
            call(x + 1.0)
        return x * 2.0 + (x == 1.0)  # wrong for the outermost alone

    call = OnDevice(gate, lambda x: x * 2.0, nested)
    for _ in range(2):
        call(torch.tensor([math.inf, 1.0]))
        found = settled(call.made)
    assert found.outliers == 6, found
    assert found.checked + found.dropped == 6, found
    assert [v.values["x"][1] for v in call.told if v.values] == [1.0, 1.0]


@interpreted
def test_what_cannot_be_kept_is_not_looked_at() -> None:
    gate = DeviceGate(room_bytes=1 << 10)
    call = OnDevice(gate, lambda *x: x[0], lambda *x: x[0])
    x = torch.ones(4)
    for args in ([torch.ones(5000)], [x] * 5, [torch.ones(4, 4)[:, ::2]], [x.long()]):
        assert gate.look(args, CPU, 1) is None
    call(*[x] * 5)
    call([x], x)
    found = settled(call.made)
    assert (found.skipped, found.errors) == (1, 0)


def test_calls_on_the_cpu_are_seen_where_that_is_asked_for() -> None:
    def made(gate: DeviceGate) -> Any:
        return kfuzz.monitor(
            torch.relu, rate=0.0, signatures=False, name="cpu", device_gate=gate
        )(lambda x: torch.relu(x))

    seen, unseen = made(DeviceGate(on_cpu=True)), made(DeviceGate())
    draw = torch.Generator().manual_seed(1)
    for function in (seen, unseen):
        for _ in range(300):
            function(torch.randn(64, generator=draw))
        function(torch.full((64,), 1e6))
        function(torch.tensor([1.0, math.nan]))
    found, none = settled(seen), settled(unseen)
    assert 2 <= found.outliers <= 8, found
    assert found.checked == found.sampled == found.outliers
    assert (none.outliers, none.sampled) == (0, 0)
    seen.monitor.device_gate.rate = 0.0
    seen(torch.full((64,), 1e9))
    assert settled(seen).outliers == found.outliers


@pytest.mark.parametrize(
    "given", [{"share": 0.0}, {"decay": 1.0}, {"rate": 2.0}, {"slots": 0}]
)
def test_an_impossible_gate_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        DeviceGate(**given)
