"""`kfuzz run`: what is asked of the engine, printed, and exited with."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kfuzz.app import main
from kfuzz.cli.streams import ExitCode
from kfuzz.core.event import ContractTally, Event, RunFinished
from kfuzz.core.verdict import State, Verdict
from kfuzz.store import files as strict_json
from tests.helpers.command_line import Engine, config_says
from tests.helpers.events import UNDECIDED, campaign, finished
from tests.helpers.findings import finding

pytestmark = pytest.mark.usefixtures("project", "usual_signals")


@pytest.fixture
def usual_signals() -> Iterator[None]:
    """Handle signals as in a terminal: whoever runs the tests may ignore some."""
    usual = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, h) for number, h in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_targets_and_corpus_come_from_the_nearest_pyproject(
    project: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'targets = ["k/a.py::f", "k", "pkg.mod:g"]\ncorpus = "bugs"'
    config_says(project, text)
    (project / "k" / "deep").mkdir(parents=True)
    main(["run"])
    monkeypatch.chdir(project / "k" / "deep")
    main(["run"])
    here, deep = engine.runs
    assert here.targets == ("k/a.py::f", "k", "pkg.mod:g")
    assert deep.targets == ("../a.py::f", "..", "pkg.mod:g")
    assert here.corpus == deep.corpus == project / "bugs"


@pytest.mark.parametrize(
    ("states", "fail_on", "code"),
    [
        ((), "any", 0),
        ((State.CONFIRMED,), "new", 1),
        ((State.KNOWN,), "new", 0),
        ((State.KNOWN,), "any", 1),
        ((State.FLAKY, State.UNREPRODUCED), "new", 0),
        ((State.NEW,), "new", 1),
    ],
)
def test_findings_fail_a_run_unless_they_are_known_or_refuted(
    states: tuple[State, ...], fail_on: str, code: int, engine: Engine
) -> None:
    found = [finding(kernel=f"k{i}", state=s) for i, s in enumerate(states)]
    engine.events = campaign(*found)
    assert main(["run", "a.py", "--fail-on", fail_on]) == code


def test_what_was_not_confirmed_is_no_success_and_never_reads_as_a_failure(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = finding(kernel="k", state=State.NEW, reduction=None, explanation=None)
    engine.events = campaign(seen)
    assert main(["run", "a.py"]) == 1
    told = capsys.readouterr().out
    [block, end] = [line for line in told.splitlines() if "UNCONFIRMED" in line]
    assert block.startswith("UNCONFIRMED k: wrong value")
    assert f"kfuzz replay {seen.id}" in end
    assert "not shrunk: time was up" in told
    assert "1 of them not confirmed: time was up" in told
    assert "FAIL" not in told


def test_a_run_in_which_nothing_ran_is_no_success(engine: Engine) -> None:
    end = RunFinished(1.0, False, 7, "cpu")
    engine.events = [finished(cases=0, contracts={}), end]
    assert main(["run", "a.py"]) == ExitCode.NOTHING_TO_RUN
    broken = {"K-VAL-01": ContractTally(Verdict.ERROR)}
    engine.events = [finished(contracts=broken), end]
    assert main(["run", "a.py"]) == ExitCode.INTERNAL
    engine.events = [finished(contracts=UNDECIDED), end]
    assert main(["run", "a.py"]) == ExitCode.OK


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_run_cleanly(
    number: int, engine: Engine, capfd: pytest.CaptureFixture[str]
) -> None:
    engine.before = lambda stop: os.kill(os.getpid(), number)
    engine.events = campaign(finding())
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert main(["run", "a.py"]) == ExitCode.INTERRUPTED
    assert engine.ended
    out, err = capfd.readouterr()
    assert "(interrupted; everything is saved)" in out
    assert "once more aborts" in err
    assert handlers == (
        signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM),
    )  # fmt: skip


def test_a_second_interrupt_aborts(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    def twice(stop: threading.Event) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    engine.before = twice
    assert main(["run", "a.py"]) == ExitCode.INTERRUPTED
    assert not engine.ended
    assert capsys.readouterr().err.endswith("kfuzz: aborted\n")


def test_json_is_alone_on_stdout(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.before = lambda stop: print("said by a kernel")  # noqa: T201
    engine.events = campaign(finding())
    assert main(["run", "a.py", "--format", "json", "--seed", "7"]) == 1
    out, err = capsys.readouterr()
    document = strict_json.loads(out)
    assert (document["format"], document["seed"]) == (1, 7)
    assert document["kernels"][0]["findings"][0]["id"] == finding().id
    assert "said by a kernel" in err
    assert "violates" in err


def test_a_report_that_breaks_costs_no_finding(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kfuzz.report.terminal import TerminalReport

    def full(self: Any, event: Event) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TerminalReport, "feed", full)
    assert main(["run", "a.py"]) == ExitCode.INTERNAL
    assert engine.ended
