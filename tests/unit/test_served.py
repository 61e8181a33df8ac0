"""When a call has had its time: by the clock, or by a processor that others use too."""

import os
import subprocess
import sys
import time

import pytest

from kfuzz.engine import served
from kfuzz.engine.served import Served, processor_seconds
from kfuzz.execution.processes import ChildTimeout


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


def waited(monkeypatch, share, *, limit=10.0):
    """Return how long a peer is waited for that gets a share of a processor."""
    clock = [0.0]

    def monotonic():
        clock[0] += 0.1
        return clock[0]

    monkeypatch.setattr(served.time, "monotonic", monotonic)
    monkeypatch.setattr(served, "processor_seconds", lambda pid: share * clock[0])
    peer = Served(Silent(), None, lambda: False)
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


def test_the_processor_time_of_a_process_is_read():
    if not os.path.exists("/proc/self/stat"):
        pytest.skip("no /proc")
    code = "while True: pass"
    with subprocess.Popen([sys.executable, "-c", code]) as busy:
        try:
            deadline = time.monotonic() + 60
            while processor_seconds(busy.pid) < 0.2:
                assert time.monotonic() < deadline
        finally:
            busy.kill()
    assert processor_seconds(None) == 0
