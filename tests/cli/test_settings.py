"""Where the settings of a run come from, and `kfuzz config`, which tells it."""

import re
from pathlib import Path
from typing import Any

import pytest

from kfuzz.app import main
from kfuzz.cli.settings import SETTINGS
from kfuzz.cli.streams import ExitCode
from kfuzz.core.budget import Scale
from kfuzz.engine.config import RunConfig
from kfuzz.store import files as strict_json
from tests.helpers.command_line import Engine, config_says, paragraph

pytestmark = pytest.mark.usefixtures("project")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in SETTINGS.values():
        monkeypatch.delenv(setting.variable, raising=False)


def asked(engine: Engine, *words: str) -> RunConfig:
    assert main(["run", *(words or ("a.py",))]) == ExitCode.OK
    return engine.runs[-1]


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["config", "--format", "json", *words]) == ExitCode.OK
    document: dict[str, Any] = strict_json.loads(capsys.readouterr().out)
    return document


def test_a_file_may_say_everything(project: Path, engine: Engine) -> None:
    config_says(
        project,
        'targets = ["a.py"]\nmax-time = "2m"\nmax-cases = 9\nmax-findings = 3\n'
        'seed = 7\nreplay = true\nprobes = 0.5\nscale = "large"\nburst = 4\n'
        'engine = "atheris"\njobs = 2\ncontracts = ["C-*"]\n'
        'exclude-contracts = ["C-PRC-*"]\ndevice = "cpu"\nisolate = "process"\n'
        'corpus = "found"\nfail-on = "any"\nformat = "json"\nquiet = true\n'
        'report = { html = "out/page.html" }',
    )
    (project / "out").mkdir()
    assert main(["run"]) == ExitCode.OK
    [config] = engine.runs
    budget = config.budget
    assert (budget.max_time, budget.max_cases, budget.max_findings) == (120.0, 9, 3)
    assert (config.targets, config.seed, config.replay) == (("a.py",), 7, True)
    assert (config.probes, config.scale, config.burst) == (0.5, Scale.LARGE, 4)
    assert (str(config.engine), config.jobs) == ("atheris", 2)
    assert (config.contracts, config.exclude_contracts) == (("C-*",), ("C-PRC-*",))
    assert (config.device, config.isolate) == ("cpu", "process")
    assert config.corpus == project / "found"
    assert (project / "out" / "page.html").is_file()


def test_the_command_line_goes_before_the_environment_and_that_before_the_file(
    project: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    config_says(
        project,
        'max-time = "1m"\nmax-findings = 1\nmax-cases = 1\nburst = 1\n'
        '[tool.kfuzz.profiles.nightly]\nmax-time = "2m"\nmax-findings = 2\n'
        "max-cases = 2",
    )
    monkeypatch.setenv("KFUZZ_MAX_TIME", "3m")
    monkeypatch.setenv("KFUZZ_MAX_FINDINGS", "3")
    config = asked(engine, "a.py", "--profile", "nightly", "--max-time", "4m")
    budget = config.budget
    assert (budget.max_time, budget.max_findings, budget.max_cases) == (240.0, 3, 2)
    assert config.burst == 1  # of [tool.kfuzz]
    assert (config.probes, config.replay) == (0.25, True)  # of the profile itself


def test_a_project_has_profiles_of_its_own(
    project: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '[tool.kfuzz.profiles.weekend]\nmax-time = "40h"\ntargets = ["all"]'
    config_says(project, 'profile = "weekend"\n' + text)
    config = asked(engine)
    assert (config.budget.max_time, config.replay) == (40 * 3600.0, False)
    capsys.readouterr()
    assert "weekend" in told(capsys)["profiles"]
    assert main(["run", "--profile", "weekends", "a.py"]) == ExitCode.USAGE
    assert "did you mean 'weekend'" in paragraph(capsys)


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ((), 60.0),
        (("--max-cases", "5"), None),
        (("--max-cases", "5", "--max-time", "9s"), 9.0),
        (("--max-cases", "5", "--profile", "pr"), 300.0),
        (("--profile", "large"), 60.0),
    ],
)
def test_the_default_time_falls_away_beside_a_number_of_cases(
    words: tuple[str, ...], limit: float | None, engine: Engine
) -> None:
    assert asked(engine, "a.py", *words).budget.max_time == limit


BAD = [
    ("max_time = 5", "did you mean 'max-time'"),
    ('max-time = "soon"', "[tool.kfuzz] max-time: 'soon' is not a duration"),
    ("max-time = true", "'true' is not a duration"),
    ("probes = 2", "'2' is not a share"),
    ("replay = 2", "'2' is not true or false"),
    ('device = "tpu"', "[tool.kfuzz] device: 'tpu'"),
    ('report = { htm = "a" }', "did you mean 'html'"),
    ("profiles.nightly = 3", "[tool.kfuzz.profiles.nightly]: is not a table"),
    ("[tool.kfuzz.profiles.nightly]\nmax-tim = 3", "did you mean 'max-time'"),
    ('[tool.kfuzz.profiles.pr]\ncorpus = "c"', "corpus cannot be a profile's"),
]


@pytest.mark.parametrize(("text", "part"), BAD, ids=[t for t, _ in BAD])
def test_what_a_file_cannot_say_is_told_with_file_key_and_way_out(
    text: str,
    part: str,
    project: Path,
    engine: Engine,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config_says(project, text)
    assert main(["run", "a.py"]) == ExitCode.USAGE
    shown = paragraph(capsys)
    assert part in shown
    assert str(project / "pyproject.toml") in shown
    assert not engine.runs


def test_variables_say_what_options_do(
    project: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    said = {
        "TARGETS": "a.py 'b c.py'", "MAX_CASES": "5", "SEED": "9", "REPLAY": "yes",
        "CONTRACTS": "C-* K-*", "CORPUS": "elsewhere", "QUIET": "1", "BURST": "",
        "REPORT": "markdown=kept.md",
    }  # fmt: skip
    for name, text in said.items():
        monkeypatch.setenv(f"KFUZZ_{name}", text)
    assert main(["run"]) == ExitCode.OK
    [config] = engine.runs
    assert config.targets == ("a.py", "b c.py")
    assert (config.budget.max_cases, config.seed, config.replay) == (5, 9, True)
    assert config.contracts == ("C-*", "K-*")
    assert config.corpus == Path("elsewhere")
    assert config.burst == 128  # an empty variable says nothing
    assert (project / "kept.md").is_file()
    repeat = capsys.readouterr().out.partition("repeat: ")[2]
    for part in ("--replay", "--max-cases 5", "--contracts 'K-*'"):
        assert part in repeat


def test_config_tells_each_value_with_its_source(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config_says(project, "burst = 8\n[tool.kfuzz.profiles.nightly]\nmax-findings = 2")
    monkeypatch.setenv("KFUZZ_DEVICE", "cpu")
    monkeypatch.setenv("KFUZZ_MAXTIME", "5s")
    document = told(capsys, "--profile", "nightly")
    assert document["file"] == str(project / "pyproject.toml")
    assert document["unknown_variables"] == ["KFUZZ_MAXTIME"]
    sources = {k: (s["value"], s["source"]) for k, s in document["settings"].items()}
    assert set(sources) == set(SETTINGS)
    section = "pyproject.toml [tool.kfuzz"
    assert sources["profile"] == ("nightly", "command line")
    assert sources["device"] == ("cpu", "KFUZZ_DEVICE")
    assert sources["max-findings"] == (2, f"{section}.profiles.nightly]")
    assert sources["burst"] == (8, f"{section}]")
    assert sources["max-time"] == ("3h", "profile nightly")
    assert sources["engine"] == ("hypothesis", "default")
    assert sources["corpus"] == (str(project / "corpus"), "default")
    assert main(["config"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert re.search(r"^device +cpu +KFUZZ_DEVICE$", out, re.MULTILINE)
    assert re.search(r"^max-time +60s +default$", out, re.MULTILINE)
    assert (
        "KFUZZ_MAXTIME is set and is no setting: did you mean 'KFUZZ_MAX_TIME'" in out
    )
