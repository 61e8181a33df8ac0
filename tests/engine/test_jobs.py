"""Kernels side by side: who has a turn, what is told in which order, what ends it."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kfuzz.core.budget import Budget, Scale
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search import schedule as preconditions
from kfuzz.engine.workers.jobs import Halt, processors, streamed

# For a thread that does not do what it should to fail a test and not to stop it.
PATIENCE = 30.0


def pieces(*lengths: int) -> Iterator[list[tuple[int, int]]]:
    return iter(
        [[(piece, n) for n in range(length)] for piece, length in enumerate(lengths)]
    )


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_each_piece_is_told_whole_and_in_its_order(jobs: int) -> None:
    left, turn = pieces(3, 0, 7, 1), threading.Lock()

    def take() -> list[tuple[int, int]] | None:
        with turn:
            return next(left, None)

    told = list(streamed(take, jobs))
    assert sorted(told) == [
        (p, n) for p, k in enumerate((3, 0, 7, 1)) for n in range(k)
    ]
    for piece in range(4):
        mine = [n for p, n in told if p == piece]
        assert mine == sorted(mine)


def test_a_failure_is_raised_once_the_others_have_ended() -> None:
    ended = threading.Event()
    halted = threading.Event()
    left, turn = iter((0, 1, 2, 3)), threading.Lock()

    def take() -> Iterator[str] | None:
        with turn:
            number = next(left, None)
        return None if number is None else piece(number)

    def piece(number: int) -> Iterator[str]:
        if number:
            raise OSError("the disk is full")
        yield "begun"
        assert halted.wait(PATIENCE)
        ended.set()
        yield "saved"

    told: list[str] = []
    with pytest.raises(OSError, match="full"):
        told.extend(streamed(take, 2, halt=halted.set))
    assert ended.is_set()
    assert told == ["begun", "saved"]
    assert next(left) >= 2  # nothing was begun after it


def test_who_stops_listening_ends_the_work() -> None:
    halt = Halt(threading.Event())
    running = threading.Event()

    def piece() -> Iterator[int]:
        yield 1
        running.set()
        while not halt.is_set():
            time.sleep(0.005)

    told = streamed(piece, 2, halt=halt.set)
    assert next(told) == 1
    assert running.wait(PATIENCE)
    before = time.monotonic()
    told.close()  # type: ignore[attr-defined]
    assert halt.is_set()
    assert time.monotonic() - before < PATIENCE
    assert not [t for t in threading.enumerate() if "work" in t.name]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "100000 100000\n"}, 1),
        ({"outer/cpu.max": "150000 100000\n", "outer/inner/cpu.max": "max 1\n"}, 2),
        ({"cpu.max": "nonsense"}, None),
    ],
)
def test_a_quota_counts_where_it_is_less_than_the_machine(
    files: dict[str, str],
    expected: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "os.sched_getaffinity", lambda pid: set(range(6)), raising=False
    )
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    own = tmp_path / "own"
    own.write_text("0::/outer/inner\n")
    assert processors(groups=tmp_path, own=own) == (expected or 6)


@pytest.mark.parametrize(
    ("count", "gpus", "kernels", "jobs"),
    [(16, 1, 24, 4), (16, 1, 3, 3), (8, 1, 24, 2), (2, 1, 24, 1), (16, 2, 24, 4),
     (64, 2, 24, 8), (4, 2, 24, 2)],
)  # fmt: skip
def test_kernels_share_a_gpu_where_there_are_processors_for_them(
    count: int, gpus: int, kernels: int, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preconditions, "processors", lambda: count)
    backend: Any = SimpleNamespace(
        isolated=True,
        devices=tuple(f"cuda:{n}" for n in range(gpus)),
        on=SimpleNamespace(has=SimpleNamespace(asynchronous=True)),
    )
    timed = RunConfig(targets=(), root=Path(), corpus=Path())
    config = replace(timed, budget=Budget(max_time=9.0, max_cases=9))
    monkeypatch.setattr(preconditions, "free_memory", lambda: 1 << 40)
    assert preconditions.jobs_of(config, backend, kernels) == jobs
    assert preconditions.jobs_of(config, backend, 1) == 1
    alone = preconditions.jobs_of(timed, backend, 1)  # one kernel has them all
    assert alone == preconditions.jobs_of(timed, backend, 24)
    assert min(alone, kernels) == jobs
    large = replace(config, scale=Scale.LARGE)
    assert preconditions.jobs_of(large, backend, kernels) == min(gpus, kernels)
    monkeypatch.setattr(preconditions, "free_memory", lambda: 3 << 29)
    assert preconditions.jobs_of(timed, backend, 1) == 1
