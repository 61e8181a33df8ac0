"""The command line as a whole: usage, configuration, errors, streams."""

import os
import re
from pathlib import Path

import pytest

from kfuzz.app import main
from kfuzz.cli.settings import duration
from kfuzz.cli.streams import ExitCode, code_of
from kfuzz.core.errors import (
    BackendError,
    BindingError,
    DecodeError,
    HarnessError,
    KfuzzError,
    NothingToRunError,
    UsageError,
)
from tests.helpers.command_line import (
    Engine,
    config_says,
    paragraph,
    python,
    stored,
)

pytestmark = pytest.mark.usefixtures("project")

# What is wrong -> (arguments, part of the paragraph)
BAD = [
    (["runn"], "did you mean"),
    (["run", "--max-tme", "3"], "--max-time"),
    (["run", "a.py", "--max-time", "soon"], "90, 90s, 10m"),
    (["run", "a.py", "--max-time", "0"], "0 is not a time above 0 s, up to 168h"),
    (["run", "a.py", "--max-time", "nan"], "is not a duration"),
    (["run", "a.py", "--max-time", "9" * 5000], "is not a duration"),
    (["run", "a.py", "--max-cases", "many"], "--max-cases"),
    (["run", "a.py", "--max-cases", "0"], "at least 1"),
    (["run", "a.py", "--seed", "-1"], "--seed"),
    (["run", "a.py", "--seed", str(2**64)], "2^64"),
    (["run", "a.py", "--device", "cpuu"], "did you mean 'cpu'"),
    (["run", "a.py", "--device", "cuda:-1"], "--device"),
    (["run", "a.py", "--isolate", "proces"], "did you mean 'process'"),
    (["run", "a.py", "--fail-on", "old"], "valid: any, new"),
    (["run", "a.py", "-q", "-v"], "exclude each other"),
    (["run", "a.py", "--corpus", ""], "--corpus"),
    (["run", "a.py", "--corpus", "pyproject.toml"], "is not a folder"),
    (["run", "a.py", "--corpus", "x" * 5000], "cannot be used"),
    (["run"], "[tool.kfuzz]"),
    (["replay", "nope"], "no finding 'nope'"),
    (["replay", "--device", "tpu"], "--device"),
    (["shrink"], "missing argument 'ID'"),
    (["show"], "missing argument 'ID'"),
    (["show", "a", "b"], "unexpected extra argument"),
    (["corpus"], "missing command"),
    (["corpus", "lst"], "list"),
    (["corpus", "list", "--corpus", "nowhere"], "no such folder"),
    (["contracts", "show", "C-PRC-01/matmull"], "C-PRC-01/matmul"),
    (["contracts", "show", "\x1b[31m"], "no contract"),
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
    assert code_of(error) == code
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


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("1h", 3600), ("1h30m", 5400),
     ("0.5", 0.5), ("1h2m3.5s", 3723.5)],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


def test_reading_verbs_start_without_torch(project: Path) -> None:
    stored(project)
    lines = (
        "--help", "--version", "corpus list", "corpus check", "contracts list",
        "contracts show K-VAL-01/sum", "show softmax",
    )  # fmt: skip
    code = (
        "import sys; from kfuzz.app import main\n"
        f"for line in {lines}:\n"
        "    code = main(line.split())\n"
        "    heavy = {'torch', 'triton', 'hypothesis', 'numpy'} & set(sys.modules)\n"
        "    if heavy or code:\n"
        "        sys.exit(f'{line}: exit code {code}, imports {heavy}')\n"
    )
    done = python(["-c", code])
    assert done.returncode == 0, done.stderr


def test_a_reader_that_leaves_gets_no_traceback() -> None:
    source, sink = os.pipe()
    os.close(source)
    done = python(["-m", "kfuzz", "contracts", "list"], stdout=sink)
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
    done = python(["-c", code])
    assert done.stdout == "report\nafter\n"
    assert {"raw", "py", "shell"} <= set(re.split(r"(?<=raw)|\n", done.stderr))
