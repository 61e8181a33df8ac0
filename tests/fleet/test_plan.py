"""The plan of a fleet: every task is done, on what may do it."""

import random

import pytest

from kfuzz.fleet.plan import (
    ATTEMPTS,
    CANARIES,
    LEAST_SECONDS,
    UNIT_SECONDS,
    Action,
    Assign,
    Canary,
    Dismiss,
    Doubted,
    Dropped,
    Ended,
    GiveUp,
    Halted,
    Joined,
    Lost,
    Plan,
    Recall,
    Task,
    Tell,
)


def assigned(actions: list[Action]) -> dict[str, Task]:
    return {a.worker: a.task for a in actions if isinstance(a, Assign)}


def test_each_subject_is_one_task_without_a_time_limit() -> None:
    plan = Plan(["a", "b", "c"])
    first = assigned(
        [*plan.take(Joined("w1", "d1"), 0), *plan.take(Joined("w2", "d2"), 0)]
    )
    assert [t.subject for t in first.values()] == ["a", "b"]
    assert all(t.seconds is None and t.block == 0 for t in first.values())
    last = assigned(plan.take(Ended("w1"), 5))
    assert last["w1"].subject == "c"
    plan.take(Ended("w1"), 6)
    assert not plan.is_over(6)
    plan.take(Ended("w2"), 7)
    assert plan.is_over(7)


def test_a_time_limit_is_shared_and_used_up() -> None:
    plan = Plan(["a", "b"], seconds=1000, began=0)
    plan.take(Joined("w1", "d1"), 0)
    task = plan.task_of("w1")
    assert task is not None
    assert task.seconds == UNIT_SECONDS
    second = assigned(plan.take(Ended("w1"), 300))["w1"]
    assert (task.subject, second.subject) == ("a", "b")
    third = assigned(plan.take(Ended("w1"), 900))["w1"]
    assert (third.subject, third.block) == ("a", 1)
    assert third.seconds is not None
    assert third.seconds <= 100
    assert not assigned(plan.take(Ended("w1"), 1000 - LEAST_SECONDS + 1))
    assert plan.is_over(1000 - LEAST_SECONDS + 1)


def test_each_subject_has_a_task_although_starting_takes_the_time() -> None:
    plan = Plan(["a", "b", "c"], seconds=15, began=0)
    plan.take(Joined("w1", "d1"), 0)
    plan.take(Joined("w2", "d2"), 0)
    third = assigned(plan.take(Ended("w1"), 18))["w1"]
    assert (third.subject, third.block, third.seconds) == ("c", 0, 10)
    assert not assigned(plan.take(Ended("w2"), 19))
    plan.take(Ended("w1"), 36)
    assert plan.is_over(36)


def test_many_workers_share_one_subject_by_blocks_of_seeds() -> None:
    plan = Plan(["a"], seconds=100, began=0)
    blocks = [
        assigned(plan.take(Joined(f"w{n}", f"d{n}"), 0))[f"w{n}"].block
        for n in range(4)
    ]
    assert blocks == [0, 1, 2, 3]


def test_an_exhausted_subject_gets_no_further_task() -> None:
    plan = Plan(["a"], seconds=100, began=0)
    plan.take(Joined("w", "d"), 0)
    assert not assigned(plan.take(Ended("w", exhausted=True), 1))
    assert plan.is_over(1)


def test_the_task_of_a_lost_worker_is_done_anew_with_its_number() -> None:
    plan = Plan(["a"])
    number = assigned(plan.take(Joined("w1", "d1"), 0))["w1"].number
    plan.take(Joined("w2", "d2"), 0)
    actions = plan.take(Lost("w1", "killed"), 1)
    again = assigned(actions)["w2"]
    assert (again.number, again.subject, again.attempts) == (number, "a", 1)
    assert any(isinstance(a, Tell) and "killed" in a.message for a in actions)


def test_a_task_that_loses_its_workers_is_given_up() -> None:
    plan = Plan(["a"])
    actions: list[Action] = []
    for attempt in range(ATTEMPTS):
        plan.take(Joined(f"w{attempt}", "d"), 0)
        actions = plan.take(Lost(f"w{attempt}", "out of memory"), 1)
    assert [a.task.subject for a in actions if isinstance(a, GiveUp)] == ["a"]
    assert plan.is_over(1)


def test_a_refused_worker_gets_nothing() -> None:
    plan = Plan(["a"])
    actions = plan.take(Joined("w", "d", "torch 2.11 (here 2.13)"), 0)
    assert Dismiss("w") in actions
    assert not assigned(actions)
    assert plan.workers() == 0


def test_a_device_with_two_failed_canaries_in_a_row_is_quarantined() -> None:
    plan = Plan(["a", "b", "c"])
    for worker, device in (("w1", "gpu 0"), ("w2", "gpu 0"), ("w3", "gpu 1")):
        plan.take(Joined(worker, device), 0)
    assert not plan.take(Canary("w1", "wrong sum"), 1)
    assert not plan.take(Canary("w1"), 1)  # it passes: the count begins anew
    assert CANARIES == 2
    plan.take(Canary("w1", "wrong sum"), 2)
    actions = plan.take(Canary("w2", "wrong sum"), 2)
    assert {a.worker for a in actions if isinstance(a, Dismiss)} == {"w1", "w2"}
    assert any(isinstance(a, Tell) and "gpu 0" in a.message for a in actions)
    # Both units are done anew where it works, and it does no more.
    done = [plan.task_of("w3")]
    while more := assigned(plan.take(Ended("w3"), 3)):
        done.append(more["w3"])
    assert {t.subject for t in done if t} == {"a", "b", "c"}
    assert all(t.attempts == 0 for t in done if t)
    assert Dismiss("w4") in plan.take(Joined("w4", "gpu 0"), 4)


def test_a_doubted_finding_waits_for_another_device() -> None:
    plan = Plan([])
    plan.take(Joined("w1", "gpu 0"), 0)
    plan.take(Doubted("w1", "a", "finding"), 1)
    assert [t.doubted for t in plan.deadlocked()] == ["finding"]
    task = assigned(plan.take(Joined("w2", "gpu 1"), 2))["w2"]
    assert (task.doubted, task.avoid) == ("finding", "gpu 0")
    assert not plan.deadlocked()


def test_a_halt_recalls_what_runs_and_begins_nothing() -> None:
    plan = Plan(["a", "b"])
    plan.take(Joined("w1", "d1"), 0)
    assert plan.take(Halted(), 1) == [Recall("w1")]
    assert not assigned(plan.take(Joined("w2", "d2"), 1))
    plan.take(Ended("w1"), 2)
    assert plan.is_over(2)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_lost_every_subject_is_done_or_given_up(seed: int) -> None:
    dice = random.Random(seed)
    subjects = [f"s{n}" for n in range(dice.randint(1, 12))]
    plan = Plan(subjects, seconds=dice.choice([None, 500.0]), began=0)
    alive: list[str] = []
    ended: set[str] = set()
    numbers = iter(range(10_000))
    now = 0.0

    def take(happening: object) -> None:
        for action in plan.take(happening, now):  # type: ignore[arg-type]
            match action:
                case Assign(worker, task):
                    assert worker in alive
                    assert plan.task_of(worker) == task
                case Dismiss(worker):
                    alive.remove(worker)
                case GiveUp(task, _):
                    assert task.attempts >= ATTEMPTS
                    ended.add(task.subject)

    while not plan.is_over(now):
        now += dice.random() * 5
        if len(alive) < 3:
            alive.append(f"w{next(numbers)}")
            take(Joined(alive[-1], f"d{next(numbers)}"))
            continue
        worker = dice.choice(alive)
        task = plan.task_of(worker)
        match dice.randrange(8):
            case 0:
                alive.remove(worker)
                take(Lost(worker, "killed"))
            case 1 if task:
                take(Dropped(worker, "its process ended"))
            case 2:
                take(Canary(worker, dice.choice(["", "wrong"])))
            case _ if task:
                ended.add(task.subject)
                take(Ended(worker))
    assert ended == set(subjects)
