"""What cannot be obeyed: one paragraph that says so, and the documented code."""

import sys

import pytest

from kfuzz.app import main
from kfuzz.cli import run as apart
from kfuzz.engine.search import campaign
from tests.e2e.project import HEADER, RIGHT, WRONG, Project, error
from tests.helpers.tiers import usual

SYNTAX = "def broken(:\n"
RAISES = HEADER + "\nraise RuntimeError('no luck')\n"
EXITS = HEADER + "\nraise SystemExit(0)\n"
MISSING_IMPORT = HEADER + "\nimport not_installed_anywhere\n"
SIGNATURE = HEADER + "\n@kernel(ops.softmax)\ndef two_inputs(x, y): ...\n"
BAD_CLAIM = HEADER + "\n@kernel(ops.relu, layout='any')\ndef claims(x): ...\n"
BAD_VALUE = HEADER + "\n@kernel(ops.relu, layouts='dense')\ndef claims(x): ...\n"
NOT_AN_OPERATOR = HEADER + "\n@kernel(torch.relu)\ndef claims(x): ...\n"
EMPTY_DOMAIN = (
    HEADER + "\n@kernel(ops.relu, shape_class='N > 10**9')\ndef claims(x): ...\n"
)
UNSAFE_CLAIM = (
    HEADER
    + "\n@kernel(ops.relu, shape_class='__import__(\"os\").getpid() > 0')\n"
    + "def claims(x): ...\n"
)
TWICE = HEADER + RIGHT + RIGHT

# File's text, arguments, exit code, parts of the paragraph.
BAD = {
    "no such file": ("", ["nothing.py"], 2, ["nothing.py", "no such file"]),
    "a near miss": ("", ["kernel.py"], 2, ["did you mean", "kernels.py"]),
    "a long name": ("", [f"{'n' * 300}.py"], 2, ["no such file"]),
    "a long report": (
        HEADER + RIGHT, ["kernels.py", "--report", f"jsonl={'n' * 300}"], 2,
        ["cannot be written here"],
    ),
    "no such module": ("", ["no.such_module"], 2, ["no module"]),
    "no path at all": ("", ["kernels.py; rm -rf"], 2, ["neither a path nor a module"]),
    "a name too many": ("", [".::right"], 2, ["folder has no kernels of its own"]),
    "no kernel": ("x = 1\n", ["kernels.py"], 4, ["no kernel is bound"]),
    "an empty folder": ("x = 1\n", ["."], 4, ["no kernel is bound"]),
    "no such kernel": (HEADER + RIGHT, ["kernels.py::rigth"], 4, ["did you mean"]),
    "no syntax": (SYNTAX, ["kernels.py"], 2, ["kernels.py", "SyntaxError"]),
    "raises": (RAISES, ["kernels.py"], 2, ["kernels.py:6", "no luck"]),
    "exits": (EXITS, ["kernels.py"], 2, ["SystemExit"]),
    "an import": (MISSING_IMPORT, ["kernels.py"], 2, ["not_installed_anywhere"]),
    "signature": (SIGNATURE, ["kernels.py"], 2, ["(x, y)", "softmax(x", "'y'"]),
    "claim": (BAD_CLAIM, ["kernels.py"], 2, ["'layout'", "did you mean 'layouts'"]),
    "value": (BAD_VALUE, ["kernels.py"], 2, ["layouts='dense'", "contiguous"]),
    "operator": (NOT_AN_OPERATOR, ["kernels.py"], 2, ["not an operator"]),
    "domain": (EMPTY_DOMAIN, ["kernels.py"], 2, ["claims"]),
    "unsafe": (UNSAFE_CLAIM, ["kernels.py"], 2, ["shape_class"]),
    "twice": (TWICE, ["kernels.py"], 2, ["two kernels", "'right'"]),
    "contracts": (
        HEADER + RIGHT, ["kernels.py", "--contracts", "Q-*"], 2, ["Q-*", "K-VAL-01"],
    ),
    "excluded": (
        HEADER + RIGHT, ["kernels.py", "--exclude-contracts", "*"], 2, ["no contract"],
    ),
    "device": (HEADER + RIGHT, ["kernels.py", "--device", "tpu"], 2, ["--device"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_paragraph_and_a_code(
    name: str,
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text, words, code, parts = BAD[name]
    project.write("kernels.py", text)
    # In this process: a fresh one imports torch for seconds to say one line.
    monkeypatch.chdir(project.folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(apart, "events", campaign.run)
    assert main(["run", *words]) == code
    out, err = capsys.readouterr()
    assert out == ""
    *before, last = err.splitlines()
    assert all(line.startswith("kfuzz: importing ") for line in before)
    assert last.startswith("kfuzz: error: ")
    for part in parts:
        assert part in err
    assert not project.corpus.exists()


@pytest.mark.slow
def test_a_name_twice_in_two_files(project: Project) -> None:
    project.write("one.py", HEADER + RIGHT)
    project.write("two.py", HEADER + RIGHT)
    done = project.kfuzz("run", ".", "--max-cases", "20")
    assert done.returncode == 0
    assert {"one.py::right", "two.py::right"} <= set(done.stdout.split())


CORPORA = {
    "a file": ("corpus", 2, "is not a folder"),
    "a file in it": ("corpus/wrong", 3, "cannot be written"),
    "nobody's": ("", 2, "cannot be stored"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [usual(n, is_usual=n == "nobody's") for n in CORPORA])
def test_a_corpus_that_cannot_be_written(name: str, project: Project) -> None:
    file, code, part = CORPORA[name]
    project.write("kernels.py", HEADER + WRONG)
    # Not even root can make a folder there.
    corpus = "corpus" if file else "/sys/kfuzz"
    if file:
        project.write(file, "not a folder")
    done = project.kfuzz(
        "run", "kernels.py", "--max-cases", "60", "--seed", "1", "--device", "cpu",
        "--corpus", corpus,
    )  # fmt: skip
    assert done.returncode == code
    paragraph = error(done)
    assert part in paragraph
    assert corpus in paragraph
    assert project.wait_until_alone() == []
