"""`--report` and `kfuzz report`: files are whole and tell how the run ended."""

import json
import os
from pathlib import Path

import pytest

from kfuzz.app import main
from kfuzz.cli.streams import ExitCode
from kfuzz.core.event import Event, Exited
from kfuzz.report.text import read_events
from tests.helpers.command_line import Engine, paragraph, stored
from tests.helpers.events import campaign
from tests.helpers.findings import finding

pytestmark = pytest.mark.usefixtures("project")

ALL = "jsonl=r.jsonl,junit=r.xml,sarif=r.sarif,markdown=r.md,html=r.html"
FILES = [text.partition("=")[2] for text in ALL.split(",")]


def kept(path: str = "r.jsonl") -> list[Event]:
    with open(path) as lines:
        return list(read_events(lines))


def leftovers() -> set[str]:
    return set(os.listdir()) - {"pyproject.toml", "corpus", *FILES}


def test_a_run_writes_every_report_it_is_asked_for(engine: Engine) -> None:
    engine.events = campaign(finding())
    assert main(["run", "a.py", "--seed", "7", "--report", ALL]) == 1
    ended = Exited(1, "", "kfuzz run a.py --max-time 60s --seed 7")
    assert kept() == [*campaign(finding()), ended]
    for name in FILES:
        assert finding().id in Path(name).read_text()
    (run,) = json.loads(Path("r.sarif").read_text())["runs"]
    assert run["invocations"][0]["exitCode"] == 1
    assert not leftovers()


def test_a_full_disk_is_an_error_that_costs_no_finding_and_no_other_report(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.events = campaign(finding())
    words = "jsonl=/dev/full,junit=r.xml,html=/dev/full"
    assert main(["run", "a.py", "--report", words]) == ExitCode.USAGE
    assert "two reports have this file" in paragraph(capsys)
    words = "jsonl=/dev/full,junit=r.xml"
    assert main(["run", "a.py", "-q", "--report", words]) == ExitCode.INTERNAL
    assert engine.ended
    error = capsys.readouterr().err
    assert "report jsonl=/dev/full could not be written: No space left" in error
    assert "`kfuzz report` makes reports of it" in error
    assert finding().id in Path("r.xml").read_text()


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("pdf=a.pdf", "'pdf=a.pdf' names no report. valid: html"),
        ("html", "names no file"),
        ("html=.", "is a folder"),
        ("html=missing/a.html", "No such file or directory"),
        ("html=a.html,junit=./a.html", "two reports have this file"),
    ],
)
def test_a_report_that_cannot_be_asked_for_ends_the_run_before_it_begins(
    words: str, what: str, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "a.py", "--report", words]) == ExitCode.USAGE
    assert what in capsys.readouterr().err
    assert not leftovers()


@pytest.fixture
def events_kept(engine: Engine) -> str:
    engine.events = campaign(finding())
    main(["run", "a.py", "--report", "jsonl=kept.jsonl"])
    return "kept.jsonl"


def test_reports_can_be_made_afterwards_of_what_a_run_kept(
    engine: Engine, events_kept: str
) -> None:
    main(["run", "a.py", "--report", "junit=then.xml"])
    assert (
        main(["report", "junit=now.xml", "html=r.html", "--events", events_kept]) == 0
    )
    assert Path("now.xml").read_text() == Path("then.xml").read_text()
    assert main(["report", "jsonl=again.jsonl", "--events", events_kept]) == 0
    assert kept("again.jsonl") == kept("kept.jsonl")


def test_reports_can_be_made_of_a_corpus_alone(project: Path) -> None:
    found = stored(project)
    (project / "corpus" / "softmax" / "broken").mkdir()
    (project / "corpus" / "softmax" / "broken" / "finding.json").write_text("{")
    assert main(["report", ALL]) == 0
    assert found.id in Path("r.html").read_text()
    notes = Path("r.md").read_text()
    assert "skipped" in notes
    assert "cut off" not in notes


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        ("report", ExitCode.USAGE, "sarif=FILE"),
        ("report html=a.html", ExitCode.NOTHING_TO_RUN, "no finding is stored here"),
        ("report html=a.html --events bad", ExitCode.USAGE, "bad:1: not JSON"),
        ("report jsonl=bad --events bad", ExitCode.USAGE, "would be overwritten"),
    ],
)
def test_nothing_to_report_is_said(
    words: str, code: int, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad").write_text("{\n")
    assert main(words.split()) == code
    assert what in capsys.readouterr().err
    assert Path("bad").read_text() == "{\n"
    assert not Path("a.html").exists()
