"""Parts of the monitor: the ring of bytes, the gate."""

import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kfuzz.core.errors import UsageError
from kfuzz.features.monitor.gate import HostGate, signature_of
from kfuzz.features.monitor.runtime import Checker
from kfuzz.features.monitor.seen import ALIGNMENT, ByteRing, Memory, Slot
from tests.helpers.monitors import SECONDS


@given(
    st.integers(1, 20),
    st.lists(st.one_of(st.integers(1, 900), st.tuples(st.integers(0, 30)))),
)
@settings(max_examples=200, derandomize=True, database=None)
def test_slots_of_a_ring_never_overlap_and_all_room_comes_back(
    blocks: int, steps: list[Any]
) -> None:
    ring = ByteRing(blocks * ALIGNMENT)
    held: list[Slot] = []
    for step in steps:
        if isinstance(step, tuple):  # give one back, in any order
            if held:
                ring.give(held.pop(step[0] % len(held)))
            continue
        slot = ring.take(step)
        if slot is None:
            assert held or step > ring.capacity
            continue
        assert slot.start % ALIGNMENT == 0
        assert slot.size >= step
        assert 0 <= slot.start <= ring.capacity - slot.size
        for other in held:
            apart = slot.start + slot.size <= other.start
            assert apart or other.start + other.size <= slot.start
        held.append(slot)
        assert sum(s.size for s in held) <= ring.used <= ring.capacity
    for slot in held:
        ring.give(slot)
    assert ring.used == 0
    assert ring.take(ring.capacity) is not None


def test_snapshots_hold_every_layout_and_nothing_of_the_original() -> None:
    memory = Memory(1 << 16, lambda _: None)
    base = torch.randn(6, 8)
    views = [
        base, base.t(), base[:, ::3], base[1], base[2, 3], base[:1].expand(5, 8),
        base.half(), base > 0, base.as_strided((3, 4), (1, 1)), torch.zeros(0, 3),
        base.as_strided((1,), (7,), 2), base.to(torch.float8_e5m2),
    ]  # fmt: skip
    made = memory.take(views)
    assert made is not None
    wanted = [v.clone() for v in views]
    base.zero_()
    for copy, was, view in zip(made.copies, wanted, views, strict=True):
        assert (copy.shape, copy.strides) == (tuple(view.shape), view.stride())
        assert torch.equal(copy.values.float(), was.float())
    assert memory.take([torch.zeros(1 << 15)]) is None
    made.release()
    assert memory.used == 0


@pytest.mark.parametrize("rate", [-0.1, 1.5, float("nan"), "0.1", True])
def test_what_is_no_share_is_no_rate(rate: Any) -> None:
    with pytest.raises(UsageError):
        HostGate(rate, signatures=True, seed=0)


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.5, 1.0])
def test_calls_are_chosen_at_the_rate(rate: float) -> None:
    gate = HostGate(rate, signatures=False, seed=1)
    chosen = sum(gate.look((), {})[1] is not None for _ in range(20_000))
    deviation = (20_000 * rate * (1 - rate)) ** 0.5
    assert abs(chosen - 20_000 * rate) <= 4 * deviation
    assert gate.calls == 20_000
    assert gate.calls == 20_000  # asking counts nothing


def test_signatures_differ_where_a_kernel_may_branch() -> None:
    x = torch.zeros(4, 4)
    shifted = torch.zeros(17)[1:].view(4, 4)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((x,), {}),
        ((x.t(),), {}),
        ((x.half(),), {}),
        ((x[:2],), {}),
        ((shifted,), {}),
        (([x],), {}),
        ((x,), {"y": x}),
        ((x, True), {}),
        ((x, "mean"), {}),
        ((x, "sum"), {}),
        (({"a": x, "b": [x, x.t()]},), {}),
    ]
    found = [tuple(signature_of(*call)) for call in calls]
    assert len(set(found)) == len(found)
    assert signature_of((x, 1), {}) == signature_of((torch.ones(4, 4), 2), {})


def test_checking_goes_on_whatever_an_item_raises() -> None:
    told: list[BaseException] = []

    working = Checker(failed=told.append)
    done: list[int] = []
    for i in range(2):
        working.put(lambda i=i: done.append(i))  # type: ignore[misc]
        working.put(sys.exit)  # as a callback may
        assert working.flush(SECONDS)
    working.end(SECONDS)
    assert done == [0, 1]
    assert {type(error) for error in told} == {SystemExit}
