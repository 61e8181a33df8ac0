"""Zygotes are begun early and kept; nothing of the last campaign is left in them."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfuzz.engine.workers import zygotes
from kfuzz.execution.device.backends import BACKENDS, CPU, INTERPRET

SERVE = "processes_serving:serve"


@pytest.fixture(autouse=True)
def light(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """None waits, and none imports torch."""
    zygotes.end_all()
    for backend in (CPU, INTERPRET):
        monkeypatch.setattr(type(backend), "preload", ())
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "helpers"))
    yield
    zygotes.end_all()


def lend(backend: str = "cpu") -> zygotes.Leased:
    return zygotes.lend(BACKENDS[backend], SERVE, output=lambda _: None)


def is_gone(pid: int | None) -> bool:
    assert pid is not None
    deadline = time.monotonic() + 20.0
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def test_the_next_campaign_takes_the_zygote_of_the_last_without_its_children() -> None:
    first = lend()
    child = first.zygote.fork()
    child.send({"do": "hang"})
    first.give_back()
    assert is_gone(child.pid)
    second = lend()
    assert second.zygote.pid == first.zygote.pid
    with second.zygote.fork() as other:
        assert other.request({"do": "echo", "value": 3}, 30.0)
    second.give_back()


def test_one_that_died_meanwhile_is_begun_anew() -> None:
    first = lend()
    first.zygote.fork().close()
    first.give_back()
    pid = first.zygote.pid
    assert pid is not None
    os.kill(pid, 9)
    second = lend()
    with second.zygote.fork() as child:
        assert child.request({"do": "echo", "value": 3}, 30.0)
    assert second.zygote.pid != pid
    second.give_back()
