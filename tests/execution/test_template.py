"""Templates: what they import is there in their children; they end with their owner."""

import os
import signal
from collections.abc import Iterator

import pytest

from kfuzz.execution.processes.child import Template, Zygote
from kfuzz.execution.processes.wire import ChildDied, ChildRaised, ZygoteError
from tests.execution.test_processes import PATIENCE, all_gone, ask, new_zygote


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with new_zygote() as zygote:
        yield zygote


def template(zygote: Zygote, **message: object) -> Template:
    return Template(zygote, "processes_serving:prepare", dict(message))


def test_what_was_prepared_is_in_every_child(zygote: Zygote) -> None:
    with template(zygote, colour="red") as made:
        told = made.wait(PATIENCE)
        assert told == {"made": {"pid": made.pid}, "unforkable": ""}
        with made.fork() as one, made.fork() as other:
            pids = {made.pid, one.pid, other.pid}
            assert len(pids) == 3
            for child in (one, other):
                reply = ask(child, "prepared")
                assert reply == {"colour": "red", "parent": made.pid}
    with zygote.fork() as child:
        assert "colour" not in ask(child, "prepared")


def test_a_child_that_died_says_how_and_others_follow(zygote: Zygote) -> None:
    with template(zygote) as made:
        made.wait(PATIENCE)
        with made.fork() as child:
            child.send({"do": "hang"})
            os.kill(child.pid, signal.SIGSEGV)
            with pytest.raises(ChildDied) as died:
                child.wait(PATIENCE)
            assert died.value.signal_name == "SIGSEGV"
        with made.fork() as child:
            assert ask(child, "echo") == {"do": "echo"}


def test_threads_that_run_are_told_and_nothing_is_forked(zygote: Zygote) -> None:
    with template(zygote, starts="a thread") as made:
        assert "spinner" in made.wait(PATIENCE)["unforkable"]


def test_an_import_that_raises_or_exits_says_so(zygote: Zygote) -> None:
    with template(zygote, raises="no such") as made, pytest.raises(ChildRaised) as told:
        made.wait(PATIENCE)
    assert told.value.message == "no such"
    with template(zygote, exits=3) as made, pytest.raises(ChildDied) as died:
        made.wait(PATIENCE)
    assert died.value.exit_code == 3


def test_leaving_ends_it_and_its_children(zygote: Zygote) -> None:
    with template(zygote) as made:
        made.wait(PATIENCE)
        child = made.fork()
        child.send({"do": "spin_holding_signals"})
        helpers = made.fork()
        pids = ask(helpers, "leave_helpers")["pids"]
    assert all_gone([made.pid, child.pid, helpers.pid, *pids])


def test_one_that_is_killed_takes_its_children_along(zygote: Zygote) -> None:
    with template(zygote) as made:
        made.wait(PATIENCE)
        child = made.fork()
        child.send({"do": "spin_holding_signals"})
        os.kill(made.pid, signal.SIGKILL)
        with pytest.raises(ZygoteError):
            made.fork()
        assert all_gone([made.pid, child.pid])
    with zygote.fork() as other:  # the zygote is none the worse for it
        assert ask(other, "echo") == {"do": "echo"}


def test_it_ends_with_the_zygote() -> None:
    zygote = new_zygote()
    made = template(zygote)
    made.wait(PATIENCE)
    child = made.fork()
    child.send({"do": "spin_holding_signals"})
    zygote.close()
    assert all_gone([made.pid, child.pid])
    made.close()
