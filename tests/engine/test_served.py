"""When a call has had its time: by the clock, or by a processor that others use too."""

import os

import pytest

from kfuzz.engine.workers import children as served
from kfuzz.engine.workers.children import CompilesLong, Served, new_pulse
from kfuzz.engine.workers.jobs import Stopped
from kfuzz.evaluation.worker import CALL_BYTES, COMPILING_BYTE
from kfuzz.execution.calls.compiling import Holder
from kfuzz.execution.processes.wire import ChildTimeout


class Silent:
    """A peer that never replies."""

    pid = 1

    def send(self, message):
        pass

    def wait(self, timeout):
        raise ChildTimeout(self.pid, timeout)

    def close(self):
        pass

    def kill(self):
        pass


def waited(monkeypatch, share, *, limit=10.0, peer=None):
    """Return how long a peer is waited for that gets a share of a processor."""
    clock = [0.0]

    def monotonic():
        clock[0] += 0.1
        return clock[0]

    monkeypatch.setattr(served.time, "monotonic", monotonic)
    monkeypatch.setattr(served, "processor_seconds", lambda pid: share * clock[0])
    peer = Served(peer or Silent(), None, lambda: False)
    peer.send({})
    start = clock[0]
    with pytest.raises(ChildTimeout):
        peer.wait(limit)
    return round(clock[0] - start)


@pytest.mark.parametrize(
    ("share", "seconds"),
    [(1.0, 10), (0.6, 10), (0.25, 20), (0.125, 40), (0.05, 10), (0.0, 10)],
)
def test_a_busy_child_gets_half_its_limit_of_the_processor(monkeypatch, share, seconds):
    assert waited(monkeypatch, share) == seconds


class Talking(Silent):
    """A peer that prints all the time, for so many looks."""

    def __init__(self, looks):
        self.looks, self.printed = looks, 0

    def wait(self, timeout):
        if self.looks:
            self.looks, self.printed = self.looks - 1, self.printed + 1
        return super().wait(timeout)


@pytest.mark.parametrize(("looks", "seconds"), [(0, 10), (130, 13), (5000, 120)])
def test_a_child_that_prints_is_waited_for_within_reason(monkeypatch, looks, seconds):
    peer = Talking(looks)
    assert waited(monkeypatch, 0.0, peer=peer) == pytest.approx(seconds, abs=1)


def test_compiled_code_that_does_not_end_is_not_waited_for_as_a_compiler_is():
    pulse = new_pulse()
    peer = Served(Silent(), pulse, lambda: False)
    os.pwrite(pulse, bytes([Holder.DEVICE]), 1)
    with pytest.raises(ChildTimeout):
        peer.wait(1e9, on_device=0.0)
    assert peer.limit(1e9, on_device=20.0) == 20.0
    os.pwrite(pulse, bytes([Holder.KERNEL]), 1)
    assert peer.limit(1e9, on_device=20.0) == 1e9
    peer.discard()


class Interpreting(Silent):
    """A peer in whose calls programs end all the time, for so many looks."""

    def __init__(self, pulse, looks, calls_every=0):
        self.pulse, self.looks, self.calls_every, self.looked = (
            pulse, looks, calls_every, 0,
        )  # fmt: skip

    def wait(self, timeout):
        self.looked += 1
        if self.looked <= self.looks:
            os.pwrite(self.pulse, bytes([self.looked % 256]), CALL_BYTES)
            if self.calls_every and self.looked % self.calls_every == 0:
                os.pwrite(self.pulse, bytes([self.looked // self.calls_every % 256]), 0)
        return super().wait(timeout)


@pytest.mark.parametrize(
    ("looks", "calls_every", "looked"),
    [
        (0, 0, 100),  # it gets nowhere
        (500, 0, 600),  # and when it gets nowhere any more
        (10**6, 0, 1500),  # a grid without end
        (3000, 1000, 3100),  # each call has its time
    ],
)
def test_an_interpreted_call_hangs_when_its_programs_do(
    monkeypatch, looks, calls_every, looked
):
    clock = [0.0]
    monkeypatch.setattr(served.Served, "_now", lambda self: (clock[0], clock[0]))
    pulse = new_pulse()
    child = Interpreting(pulse, looks, calls_every)
    peer = Served(child, pulse, lambda: False)

    def wait(timeout):
        clock[0] += 0.1
        return Interpreting.wait(child, timeout)

    child.wait = wait
    peer.send({})
    with pytest.raises(ChildTimeout):
        peer.wait(10.0)
    assert child.looked == pytest.approx(looked, abs=3)
    without_end = looks == 10**6
    assert peer.limit(10.0, on_device=1e9) == (150.0 if without_end else 10.0)
    peer.discard()


@pytest.mark.parametrize("compiles", [True, False])
def test_what_compiles_for_longer_than_it_may_is_given_up(monkeypatch, compiles):
    clock = [0.0]

    def monotonic():
        clock[0] += 0.1
        return clock[0]

    monkeypatch.setattr(served.time, "monotonic", monotonic)
    monkeypatch.setattr(served, "processor_seconds", lambda pid: 0.0)
    peer = Served(Silent(), new_pulse(), lambda: False)
    os.pwrite(peer.pulse, bytes([compiles]), COMPILING_BYTE)
    peer.send({})
    with pytest.raises(CompilesLong if compiles else ChildTimeout):
        peer.wait(10.0, compiling=4.0)


@pytest.mark.parametrize(
    ("holder", "compiles", "seconds"),
    [(Holder.KERNEL, 0, 12), (Holder.KERNEL, 1, 0), (Holder.KFUZZ, 0, 0)],
)
def test_who_stops_says_for_how_long_a_call_had_not_returned(
    monkeypatch, holder, compiles, seconds
):
    clock = [0.0]
    monkeypatch.setattr(served.Served, "_now", lambda self: (clock[0], clock[0]))
    peer = Served(Silent(), new_pulse(), lambda: clock[0] > 0)
    os.pwrite(peer.pulse, bytes([holder]), 1)
    os.pwrite(peer.pulse, bytes([compiles]), COMPILING_BYTE)
    peer.send({})
    clock[0] = 12.0
    with pytest.raises(Stopped) as stopped:
        peer.wait(20.0)
    assert stopped.value.calling == seconds
