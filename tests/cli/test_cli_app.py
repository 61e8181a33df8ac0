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
    (["run", "a.py", "--max-cases", "many"], "--max-cases"),
    (["run", "a.py", "--seed", str(2**64)], "2^64"),
    (["run", "a.py", "--device", "cpuu"], "did you mean 'cpu'"),
    (["run", "a.py", "--fail-on", "old"], "valid: any, new"),
    (["run", "a.py", "-q", "-v"], "exclude each other"),
    (["run", "a.py", "--corpus", ""], "--corpus"),
    (["run", "a.py", "--corpus", "x" * 5000], "cannot be used"),
    (["run"], "[tool.kfuzz]"),
    (["replay", "nope"], "no finding 'nope'"),
    (["show"], "missing argument 'ID'"),
    (["show", "x", "--format", "sarif"], "to a file: `kfuzz report sarif=FILE`"),
    (["run", "a.py", "--format", "html"], "`kfuzz run --report html=FILE`"),
    (["report", "--format", "html"], "usage: kfuzz report [OPTIONS] {html|"),
    (["report"], "|junit|markdown|sarif=FILE"),
    (["corpus", "lst"], "list"),
    (["corpus", "list", "--corpus", "nowhere"], "no such folder"),
    (["contracts", "show", "C-PRC-01/matmull"], "C-PRC-01/matmul"),
]


@pytest.mark.parametrize(("words", "part"), BAD, ids=lambda v: " ".join(v)[:40])
def test_a_bad_command_line_gives_one_paragraph(
    words: list[str], part: str, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == ExitCode.USAGE
    assert part.lower() in paragraph(capsys).lower()
    assert not engine.runs


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
