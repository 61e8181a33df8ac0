"""`kfuzz replay` and `shrink`: which findings, what is said, the exit code."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kfuzz.app import main
from kfuzz.cli.streams import ExitCode
from kfuzz.core.verdict import State
from kfuzz.engine import replay as engine_replay
from kfuzz.engine.config import ReplayOutcome
from kfuzz.execution.device.backends import named
from kfuzz.store import files as strict_json
from kfuzz.store.corpus import Problem, Stored
from tests.helpers.command_line import Engine, paragraph, stored

pytestmark = pytest.mark.usefixtures("project")


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        (["FIXED", "FIXED"], 0),
        (["FIXED", "FAILS"], 1),
        (["FLAKY", "FIXED"], 1),
        (["ERROR", "FAILS"], 3),
        (["FIXED"], 3),  # one got no answer
    ],
)
def test_replay_exits_with_the_worst_outcome(
    outcomes: list[str],
    code: int,
    project: Path,
    engine: Engine,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, _ = stored(project), stored(project, kernel="other")
    engine.outcomes = [ReplayOutcome(o) for o in outcomes]
    assert main(["replay", "--times", "5", "--target", "b.py::f"]) == code
    assert (engine.replays[0].times, engine.replays[0].target) == (5, "b.py::f")
    assert engine.replays[0].device is None
    out = capsys.readouterr().out
    assert all(outcome in out for outcome in outcomes)
    assert one.id in out or len(outcomes) == 1
    assert "torch: 2.11 -> 2.13" in out
    main(["replay", "--format", "json"])
    document = strict_json.loads(capsys.readouterr().out)
    assert [r["outcome"] for r in document["results"]] == outcomes


@pytest.mark.parametrize(
    ("outcome", "state", "codes"),
    [
        ("FAILS", State.KNOWN, (0, 1)),
        ("ERROR", State.KNOWN, (125, 125)),
        ("FAILS", State.REGRESSED, (1, 1)),
    ],
)
def test_known_findings_fail_where_any_does(
    outcome: str, state: State, codes: tuple[int, int], project: Path, engine: Engine
) -> None:
    stored(project, state=state)
    engine.outcomes = [ReplayOutcome(outcome)]
    assert main(["replay"]) == codes[0]
    assert main(["replay", "--fail-on", "any"]) == codes[1]


def test_replay_takes_ids_files_and_folders_once_each(
    project: Path, engine: Engine
) -> None:
    one, other = stored(project), stored(project, kernel="other")
    place = f"corpus/{one.folder}"
    for names in (
        [one.id],
        [one.id[:-4]],
        [place],
        [f"{place}/finding.json"],
        ["corpus/softmax"],
        [one.id, place, "corpus/softmax"],
    ):
        engine.replayed.clear()
        main(["replay", *names])
        assert [e.finding.id for e in engine.replayed if isinstance(e, Stored)] == [
            one.id
        ], names
    for names in ([], ["corpus"], ["corpus/softmax", "corpus/other"]):
        engine.replayed.clear()
        main(["replay", *names])
        found = {e.finding.id for e in engine.replayed if isinstance(e, Stored)}
        assert found == {one.id, other.id}


def test_a_damaged_finding_is_handed_on_not_hidden(
    project: Path, engine: Engine
) -> None:
    one = stored(project)
    (project / "corpus" / one.folder / "finding.json").write_text("{")
    engine.outcomes = [ReplayOutcome.ERROR]
    for names in ([], [one.id], [f"corpus/{one.folder}"]):
        engine.replayed.clear()
        assert main(["replay", *names]) == ExitCode.UNJUDGED
        (entry,) = engine.replayed
        assert isinstance(entry, Problem)
        assert entry.path.resolve() == project / "corpus" / one.folder


def test_a_sanitizer_needs_a_version_of_triton_and_a_gpu(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = stored(project)
    assert main(["replay", one.id, "--sanitizer", "asan"]) == ExitCode.USAGE
    assert "valid: fpsan, gsan, consan, iisan, racecheck" in paragraph(capsys)
    monkeypatch.setattr(engine_replay, "version", lambda name: "3.7.1")
    assert main(["replay", one.id, "--sanitizer", "gsan"]) == ExitCode.NO_BACKEND
    assert "needs Triton 3.8 or later; installed: 3.7.1" in paragraph(capsys)
    monkeypatch.setattr(engine_replay, "version", lambda name: "3.10.0")
    words = ["replay", one.id, "--sanitizer", "gsan", "--device", "interpret"]
    assert main(words) == ExitCode.NO_BACKEND
    assert "needs a GPU" in paragraph(capsys)


def test_racecheck_needs_a_tool_and_no_version_of_triton(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["replay", stored(project).id, "--sanitizer", "racecheck"]
    monkeypatch.setenv("PATH", str(project))
    assert main(words) == ExitCode.NO_BACKEND
    assert "needs compute-sanitizer, which is not on PATH" in paragraph(capsys)
    tool = project / "compute-sanitizer"
    tool.write_text("#!/bin/sh\nexit 1\n")
    tool.chmod(0o755)
    ran: list[list[str]] = []

    def run(command: list[str], **named: Any) -> Any:
        ran.append(command)
        assert "TRITON_INSTRUMENTATION_MODE" not in named["env"]
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(engine_replay, "version", lambda name: "3.6.0")
    monkeypatch.setattr(engine_replay, "resolve", lambda name: (named("cuda"), ()))
    monkeypatch.setattr(engine_replay.subprocess, "run", run)
    monkeypatch.setattr(engine_replay.scripts, "script", lambda *_: "")
    assert main(words) == ExitCode.OK
    [(started, *options, python, script)] = ran
    assert (started, python) == (str(tool), sys.executable)
    assert options[:4] == ["--tool", "racecheck", "--error-exitcode", "1"]
    assert script.endswith(".py")


@pytest.mark.parametrize("mode", engine_replay.SANITIZERS[:4])
def test_a_sanitizer_runs_the_script_with_instrumented_kernels(
    mode: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, ran = stored(project), []

    def run(command: list[str], **named: Any) -> Any:
        ran.append((command, named["env"], Path(command[-1]).read_text()))
        return SimpleNamespace(returncode=1)

    monkeypatch.setattr(engine_replay, "resolve", lambda name: (named("cuda"), ()))
    monkeypatch.setattr(engine_replay.subprocess, "run", run)
    monkeypatch.setattr(engine_replay.scripts, "script", lambda f, t: f"{f.device} {t}")
    words = ["replay", one.id, "--sanitizer", mode, "--target", "b.py::f"]
    assert main(words) == ExitCode.VIOLATION
    [(command, environment, text)] = ran
    assert environment["TRITON_INSTRUMENTATION_MODE"] == mode
    assert text == "cuda b.py::f"
    assert ("triton.tools.gsan" in command) == (mode == "gsan")


def test_a_script_is_written_once_and_never_over_a_file(
    project: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    one = stored(project)
    assert main(["replay", one.id, "--script", "r.py"]) == 0
    assert (project / "r.py").read_text() == f"# {one.id}\n"
    assert "python r.py" in capsys.readouterr().out
    (project / "r.py").write_text("mine")
    assert main(["replay", one.id, "--script", "r.py"]) == ExitCode.USAGE
    assert "is there already" in paragraph(capsys)
    assert (project / "r.py").read_text() == "mine"
    assert main(["replay", one.id, "--script", "no/r.py"]) == ExitCode.USAGE
    assert "cannot be written" in paragraph(capsys)
    stored(project, kernel="other")
    assert main(["replay", "--script", "s.py"]) == ExitCode.USAGE
    assert "holds one finding, 2 are chosen" in paragraph(capsys)
    assert not engine.replays
