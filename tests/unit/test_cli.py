"""The command line: what is asked of the engine, printed, and exited with."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.main import get_command

import kfuzz.engine
from kfuzz import __version__
from kfuzz.cli import doctor as doctor_module
from kfuzz.cli.app import app, main
from kfuzz.cli.doctor import Health, pair_check, version_check
from kfuzz.cli.exit_codes import ExitCode, exit_code_of
from kfuzz.cli.options import duration
from kfuzz.core import strict_json
from kfuzz.core.errors import (
    BackendError,
    BindingError,
    DecodeError,
    HarnessError,
    KfuzzError,
    NothingToRunError,
    UsageError,
)
from kfuzz.core.event import ContractTally, Event, FindingSaved, RunFinished
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import State, Verdict
from kfuzz.corpus import Corpus, Problem, Stored
from kfuzz.engine.config import ReplayConfig, ReplayOutcome, ReplayResult, RunConfig
from tests.unit.events import NODE, UNDECIDED, campaign, finished
from tests.unit.findings import finding

ROOT = Path(__file__).parents[2]


@dataclass
class Engine:
    """Stands in for the engine: yields prepared events, keeps what was asked."""

    events: Sequence[Event | BaseException] = field(default_factory=campaign)
    outcomes: Sequence[ReplayOutcome] = ()
    runs: list[RunConfig] = field(default_factory=list)
    replays: list[ReplayConfig] = field(default_factory=list)
    replayed: list[Stored | Problem] = field(default_factory=list)
    before: Callable[[threading.Event], None] = lambda stop: None
    ended: bool = False

    def run(self, config: RunConfig, *, stop: threading.Event) -> Iterator[Event]:
        self.runs.append(config)
        self.before(stop)
        for event in self.events:
            if isinstance(event, BaseException):
                raise event
            if isinstance(event, RunFinished):
                event = replace(event, interrupted=stop.is_set())
            yield event
        self.ended = True

    def replay(
        self,
        stored: Sequence[Stored | Problem],
        config: ReplayConfig,
        *,
        stop: threading.Event,
    ) -> Iterator[ReplayResult]:
        self.replays.append(config)
        self.replayed += stored
        for entry, outcome in zip(stored, self.outcomes, strict=False):
            known = entry.finding if isinstance(entry, Stored) else None
            yield ReplayResult(known, entry.path, outcome, 1, config.times, "why",
                               ("torch: 2.11 -> 2.13",))  # fmt: skip

    def shrink(
        self, stored: Stored, config: ReplayConfig, *, stop: threading.Event
    ) -> Iterator[Event]:
        self.replays.append(config)
        yield FindingSaved(NODE, stored.finding, str(stored.path), False, "done")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    fake = Engine()
    parts = {
        "campaign": SimpleNamespace(run=fake.run),
        "replay": SimpleNamespace(replay=fake.replay),
        "shrink": SimpleNamespace(shrink=fake.shrink),
        "script": SimpleNamespace(script=lambda found: f"# {found.id}\n"),
    }
    for name, module in parts.items():
        monkeypatch.setattr(kfuzz.engine, name, module, raising=False)
        monkeypatch.setitem(sys.modules, f"kfuzz.engine.{name}", module)
    return fake


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty project."""
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stored(project: Path, **changes: Any) -> Finding:
    found = finding(**changes)
    Corpus(project / "corpus").save(found)
    return found


def config_says(project: Path, text: str) -> None:
    (project / "pyproject.toml").write_text(f"[tool.kfuzz]\n{text}\n")


def paragraph(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line of standard error; standard output must be empty."""
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    assert err.startswith("kfuzz: error: ")
    assert err.count("\n") == 1
    return err


# What is wrong -> (arguments, part of the paragraph)
BAD = [
    (["runn"], "did you mean"),
    (["run", "--max-tme", "3"], "--max-time"),
    (["run", "a.py", "--max-time"], "--max-time"),
    (["run", "a.py", "--max-time", "soon"], "90, 90s, 10m"),
    (["run", "a.py", "--max-time", ""], "is not a duration"),
    (["run", "a.py", "--max-time", "0"], "not between"),
    (["run", "a.py", "--max-time=-5"], "is not a duration"),
    (["run", "a.py", "--max-time", "nan"], "is not a duration"),
    (["run", "a.py", "--max-time", "1m1h"], "is not a duration"),
    (["run", "a.py", "--max-time", "9" * 5000], "is not a duration"),
    (["run", "a.py", "--max-cases", "many"], "--max-cases"),
    (["run", "a.py", "--max-cases", "0"], "at least 1"),
    (["run", "a.py", "--max-findings", "-1"], "at least 1"),
    (["run", "a.py", "--seed", "-1"], "--seed"),
    (["run", "a.py", "--seed", str(2**64)], "2^64"),
    (["run", "a.py", "--seed", "x"], "--seed"),
    (["run", "a.py", "--device", "cpuu"], "did you mean 'cpu'"),
    (["run", "a.py", "--device", "cuda:"], "--device"),
    (["run", "a.py", "--device", "cuda:-1"], "--device"),
    (["run", "a.py", "--isolate", "proces"], "did you mean 'process'"),
    (["run", "a.py", "--fail-on", "old"], "valid: any, new"),
    (["run", "a.py", "--format", "jsn"], "did you mean 'json'"),
    (["run", "a.py", "-q", "-v"], "exclude each other"),
    (["run", "a.py", "--corpus", ""], "--corpus"),
    (["run", "a.py", "--corpus", "pyproject.toml"], "is not a folder"),
    (["run", "a.py", "--corpus", "x" * 5000], "cannot be used"),
    (["run", "a.py", "--corpus", "a\0b"], "cannot be used"),
    (["run"], "[tool.kfuzz]"),
    (["replay", "nope"], "no finding 'nope'"),
    (["replay", ""], "no finding ''"),
    (["replay", "--times", "0"], "at least 1"),
    (["replay", "--device", "tpu"], "--device"),
    (["replay", "--format", "xml"], "valid: json, text"),
    (["shrink"], "missing argument 'ID'"),
    (["shrink", "nope"], "no finding"),
    (["show"], "missing argument 'ID'"),
    (["show", "nope"], "no finding"),
    (["show", "a", "b"], "unexpected extra argument"),
    (["corpus"], "missing command"),
    (["corpus", "lst"], "list"),
    (["corpus", "list", "--corpus", "nowhere"], "no such folder"),
    (["corpus", "check", "--format", "markdown"], "valid: json, text"),
    (["contracts", "show", "C-PRC-01/matmull"], "C-PRC-01/matmul"),
    (["contracts", "show", "\x1b[31m"], "no contract"),
    (["contracts", "list", "--format", "html"], "valid: json, markdown, text"),
]


@pytest.mark.parametrize(("words", "part"), BAD, ids=lambda v: " ".join(v)[:40])
def test_a_bad_command_line_gives_one_paragraph(
    words: list[str], part: str, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == ExitCode.USAGE
    assert part.lower() in paragraph(capsys).lower()
    assert not engine.runs


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('target = ["a.py"]', "did you mean 'targets'"),
        ('targets = "a.py"', 'write targets = ["kernels.py"'),
        ("targets = [1]", "is not a list of targets"),
        ('targets = [""]', "is not a list of targets"),
        ("corpus = 3", "is not a folder"),
        ("targets = [", "valid TOML"),
    ],
)
def test_a_bad_configuration_names_section_and_value(
    text: str,
    part: str,
    project: Path,
    engine: Engine,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config_says(project, text)
    assert main(["run"]) == ExitCode.USAGE
    shown = paragraph(capsys)
    assert part in shown
    assert "pyproject.toml" in shown


@pytest.mark.parametrize("text", ["tool = 3", "[tool]\nkfuzz = 3", "\udcff"])
def test_a_strange_pyproject_is_survived(
    text: str, project: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    content = text.encode("utf-8", "surrogateescape")
    (project / "pyproject.toml").write_bytes(content)
    assert main(["run"]) == ExitCode.USAGE
    paragraph(capsys)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("no"), 2),
        (BindingError("no"), 2),
        (DecodeError("no"), 2),
        (NothingToRunError("no"), 4),
        (BackendError("no"), 5),
        (HarnessError("no"), 3),
        (KfuzzError("no"), 3),
    ],
)
def test_each_error_has_its_code(
    error: KfuzzError,
    code: int,
    engine: Engine,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code_of(error) == code
    engine.events = [type(error)("it\nbroke \x1b[1m", where="here", fix="Mend it.")]
    assert main(["run", "a.py"]) == code
    shown = paragraph(capsys)
    assert shown == "kfuzz: error: here: it broke \\x1b[1m. Mend it.\n"


def test_the_codes_are_those_of_the_design() -> None:
    assert {c.name: c.value for c in ExitCode} == {
        "OK": 0, "VIOLATION": 1, "USAGE": 2, "INTERNAL": 3, "NOTHING_TO_RUN": 4,
        "NO_BACKEND": 5, "INTERRUPTED": 130,
    }  # fmt: skip


def test_an_unexpected_exception_is_short_and_says_how_to_get_more(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.events = [ZeroDivisionError("by zero")]
    assert main(["run", "a.py"]) == ExitCode.INTERNAL
    shown = paragraph(capsys)
    assert "internal error: ZeroDivisionError: by zero" in shown
    assert "`kfuzz -v" in shown
    assert main(["-v", "run", "a.py"]) == ExitCode.INTERNAL
    assert "Traceback" in capsys.readouterr().err


def test_help_names_what_is_built_and_nothing_else() -> None:
    command: Any = get_command(app)
    assert set(command.commands) == {
        "run", "replay", "shrink", "show", "corpus", "contracts", "doctor",
    }  # fmt: skip
    options = {o for p in command.commands["run"].params for o in p.opts}
    assert options == {
        "targets", "--max-time", "--max-cases", "--max-findings", "--seed",
        "--contracts", "--exclude-contracts", "--device", "--isolate", "--corpus",
        "--fail-on", "--format", "-q", "--quiet", "-v", "--verbose",
    }  # fmt: skip


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"kfuzz {__version__}\n"
    assert main(["run", "--help"]) == 0
    assert "--max-time" in capsys.readouterr().out
    assert main([]) == ExitCode.USAGE
    assert "contracts" in capsys.readouterr().out


def test_what_is_asked_reaches_the_engine(project: Path, engine: Engine) -> None:
    words = (
        "run a.py b.c:d --max-time 1h30m --max-cases 9 --max-findings 2 --seed 7 "
        "--contracts C-* --contracts K-* --exclude-contracts K-MEM-* --device cuda:1 "
        "--isolate none --corpus found"
    )
    assert main(words.split()) == 0
    (config,) = engine.runs
    assert config.targets == ("a.py", "b.c:d")
    assert config.root == project
    assert config.corpus == Path("found")
    assert (config.budget.max_time, config.budget.max_cases) == (5400.0, 9)
    assert (config.budget.max_findings, config.seed) == (2, 7)
    assert (config.contracts, config.exclude) == (("C-*", "K-*"), ("K-MEM-*",))
    assert (config.device, config.isolate) == ("cuda:1", "none")


def test_defaults_are_a_minute_a_fresh_seed_and_the_projects_corpus(
    project: Path, engine: Engine
) -> None:
    main(["run", "a.py"])
    main(["run", "a.py"])
    first, second = engine.runs
    assert first.budget.max_time == 60.0
    assert first.budget.max_cases is None
    assert first.seed != second.seed
    assert first.corpus == project / "corpus"


def test_cases_without_a_time_have_no_time_limit(engine: Engine) -> None:
    main(["run", "a.py", "--max-cases", "5"])
    assert engine.runs[0].budget.max_time is None


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
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("1h", 3600), ("1h30m", 5400),
     ("0.5", 0.5), ("1h2m3.5s", 3723.5)],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("states", "fail_on", "code"),
    [
        ((), "any", 0),
        ((State.CONFIRMED,), "new", 1),
        ((State.KNOWN,), "new", 0),
        ((State.KNOWN,), "any", 1),
        ((State.KNOWN, State.CONFIRMED), "new", 1),
        ((State.FLAKY, State.UNREPRODUCED, State.NEW), "any", 0),
    ],
)
def test_only_confirmed_findings_fail_a_run(
    states: tuple[State, ...], fail_on: str, code: int, engine: Engine
) -> None:
    found = [finding(kernel=f"k{i}", state=s) for i, s in enumerate(states)]
    engine.events = campaign(*found)
    assert main(["run", "a.py", "--fail-on", fail_on]) == code


def test_a_run_in_which_nothing_ran_is_no_success(engine: Engine) -> None:
    end = RunFinished(1.0, False, 7, "cpu")
    engine.events = [finished(cases=0, contracts={}), end]
    assert main(["run", "a.py"]) == ExitCode.NOTHING_TO_RUN
    broken = {"K-VAL-01": ContractTally(Verdict.ERROR)}
    engine.events = [finished(contracts=broken), end]
    assert main(["run", "a.py"]) == ExitCode.INTERNAL
    engine.events = [finished(contracts=UNDECIDED), end]
    assert main(["run", "a.py"]) == ExitCode.OK


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
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


def test_quiet_json_says_nothing_else(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.events = campaign(finding())
    assert main(["run", "a.py", "--format", "json", "-q"]) == 1
    out, err = capsys.readouterr()
    strict_json.loads(out)
    assert err == ""


def test_the_run_says_how_to_repeat_it(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["run", "a b.py", "--max-cases", "5", "--contracts", "C-*"])
    out = capsys.readouterr().out
    assert "seed 7" in out
    command = "kfuzz run 'a b.py' --max-cases 5 --contracts 'C-*' --seed 7"
    assert f"repeat: {command}\n" in out


def test_a_report_that_breaks_costs_no_finding(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kfuzz.report.terminal import TerminalReport

    def full(self: Any, event: Event) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TerminalReport, "feed", full)
    assert main(["run", "a.py"]) == ExitCode.INTERNAL
    assert engine.ended


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


def test_an_id_may_bear_the_name_of_a_folder(project: Path, engine: Engine) -> None:
    one = stored(project)
    (project / one.id).mkdir()
    main(["replay", one.id])
    assert len(engine.replayed) == 1


def test_a_damaged_finding_is_handed_on_not_hidden(
    project: Path, engine: Engine
) -> None:
    one = stored(project)
    (project / "corpus" / one.folder / "finding.json").write_text("{")
    engine.outcomes = [ReplayOutcome.ERROR]
    for names in ([], [one.id], [f"corpus/{one.folder}"]):
        engine.replayed.clear()
        assert main(["replay", *names]) == ExitCode.INTERNAL
        (entry,) = engine.replayed
        assert isinstance(entry, Problem)
        assert entry.path.resolve() == project / "corpus" / one.folder


def test_nothing_to_replay_is_an_error(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay"]) == ExitCode.NOTHING_TO_RUN
    assert "no finding to replay" in paragraph(capsys)


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


def test_shrink_shows_the_smaller_finding(
    project: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    one = stored(project)
    assert main(["shrink", one.id[:12], "--corpus", "corpus"]) == 0
    assert f"kfuzz replay {one.id} --corpus corpus" in capsys.readouterr().out


def test_show_tells_about_one_finding(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = stored(project)
    assert main(["show", one.id]) == 0
    assert "off by 3" in capsys.readouterr().out
    assert main(["show", one.id, "--format", "json"]) == 0
    assert strict_json.loads(capsys.readouterr().out)["id"] == one.id


def test_show_of_a_damaged_finding_names_file_and_field(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = stored(project)
    file = project / "corpus" / one.folder / "finding.json"
    file.write_text(file.read_text().replace('"confirmed"', '"solved"', 1))
    assert main(["show", one.id]) == ExitCode.USAGE
    shown = paragraph(capsys)
    assert "finding.json" in shown
    assert "state" in shown


def test_corpus_list_and_check(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["corpus", "list"]) == 0
    assert "no finding in corpus" in capsys.readouterr().out
    one, other = stored(project), stored(project, kernel="other")
    assert main(["corpus", "check"]) == 0
    assert "2 readable, 0 problems" in capsys.readouterr().out
    (project / "corpus" / one.folder / "finding.json").write_text("{")
    assert main(["corpus", "list"]) == 0
    out, err = capsys.readouterr()
    assert other.id in out
    assert one.id not in out
    assert "skipped: damaged" in err
    assert main(["corpus", "check"]) == ExitCode.VIOLATION
    assert "1 readable, 1 problems" in capsys.readouterr().out
    assert main(["corpus", "check", "--format", "json"]) == ExitCode.VIOLATION
    document = strict_json.loads(capsys.readouterr().out)
    assert document["readable"] == len(document["problems"]) == 1
    assert main(["corpus", "list", "--format", "json"]) == 0
    document = strict_json.loads(capsys.readouterr().out)
    assert [f["id"] for f in document["findings"]] == [other.id]


def test_contracts_in_three_formats(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contracts", "list", "--format", "json"]) == 0
    document = strict_json.loads(capsys.readouterr().out)
    identifiers = [c["identifier"] for c in document["contracts"]]
    assert "C-PRC-01/matmul" in identifiers
    for format in ("text", "markdown"):
        assert main(["contracts", "list", "--format", format]) == 0
        assert all(i in capsys.readouterr().out for i in identifiers[:1])
    parts = (
        "identifier", "scope", "precondition", "postcondition", "tolerance", "oracle",
        "protocol", "signature",
    )  # fmt: skip
    assert main(["contracts", "show", "C-PRC-01/matmul"]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line in parts] == list(parts)
    assert main(["contracts", "show", "C-PRC-01/matmul", "--format", "markdown"]) == 0
    out = capsys.readouterr().out
    assert re.findall("^## (.*)$", out, re.MULTILINE) == list(parts)
    assert main(["contracts", "show", "C-PRC-01/matmul", "--format", "json"]) == 0
    document = strict_json.loads(capsys.readouterr().out)
    assert document["contract"]["identifier"] == "C-PRC-01/matmul"


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        ["corpus", "list"],
        ["corpus", "check"],
        ["contracts", "list"],
        ["contracts", "show", "K-VAL-01/sum"],
        ["show", "softmax"],
    ],
    ids=" ".join,
)
def test_reading_verbs_start_without_torch(words: list[str], project: Path) -> None:
    stored(project)
    code = (
        "import sys; from kfuzz.cli.app import main\n"
        f"code = main({words!r})\n"
        "heavy = {'torch', 'triton', 'hypothesis', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'imports {heavy}' if heavy else code)"
    )
    done = _python(["-c", code])
    assert done.returncode == 0, done.stderr


def test_the_module_is_the_command() -> None:
    done = _python(["-m", "kfuzz", "run", "--max-time", "x", "a.py"])
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.startswith("kfuzz: error: --max-time")


def test_a_reader_that_leaves_gets_no_traceback() -> None:
    source, sink = os.pipe()
    os.close(source)
    done = _python(["-m", "kfuzz", "contracts", "list"], stdout=sink)
    os.close(sink)
    assert done.returncode == ExitCode.INTERRUPTED
    assert done.stderr == ""


def test_foreign_output_stays_off_stdout_at_descriptor_level() -> None:
    code = (
        "import os, sys; from kfuzz.cli.streams import report_stream\n"
        "with report_stream() as out:\n"
        "    os.write(1, b'raw'); print('py'); os.system('echo shell')\n"
        "    print('report', file=out)\n"
        "print('after')"
    )
    done = _python(["-c", code])
    assert done.stdout == "report\nafter\n"
    assert {"raw", "py", "shell"} <= set(re.split(r"(?<=raw)|\n", done.stderr))


def test_a_closed_stdout_is_survived() -> None:
    command = f"{sys.executable} -m kfuzz contracts list >&-"
    done = subprocess.run(
        command, shell=True, env=_env(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stderr == ""


def _env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def _python(
    words: list[str], *, stdout: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        env=_env(), stdout=stdout, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("package", "version", "health"),
    [
        ("torch", "2.11.0+cu128", Health.OK),
        ("torch", "2.10.9", Health.BROKEN),
        ("torch", "2.14.0", Health.OK),
        ("torch", "", Health.MISSING),
        ("triton", "3.5.1", Health.BROKEN),
        ("numpy", "2", Health.OK),
        ("hypothesis", "6.9.1", Health.BROKEN),
    ],
)
def test_versions_out_of_range_come_with_the_way_out(
    package: str, version: str, health: Health
) -> None:
    check = version_check(package, version)
    assert check.health is health
    assert bool(check.fix) == (health is not Health.OK or version == "2.14.0")


def test_numpy_and_triton_that_do_not_fit_are_told() -> None:
    (check,) = pair_check("2.4.6", "3.6.0")
    assert check.health is Health.BROKEN
    assert "numpy<2.4" in check.fix
    assert pair_check("2.3.9", "3.6.0") == pair_check("2.4.6", "3.9.0") == []


@pytest.mark.parametrize(("health", "code"), [(Health.OK, 0), (Health.BROKEN, 5)])
def test_doctor_exits_5_where_no_kernel_can_run(
    health: Health,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    child = doctor_module.Check("child process", health, "text", "a way out")
    monkeypatch.setattr(doctor_module, "_in_children", lambda: iter([child]))
    interpreter = doctor_module.Check("triton interpreter", Health.OK, "runs a kernel")
    monkeypatch.setattr(doctor_module, "_interpreter", lambda: interpreter)
    assert main(["doctor"]) == code
    lines = capsys.readouterr().out.splitlines()
    assert f"{health:<7}  child process: text. a way out" in lines
    assert all(line.split()[0] in list(Health) for line in lines)


def test_doctor_tries_everything_for_real(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capfd.readouterr().out
    for name in ("child process", "guard zones", "corpus"):
        assert f"ok       {name}: " in out
