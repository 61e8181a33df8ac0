"""Where kernels live: given in a finding's place, outside the project, of one name."""

import ast
import re
import shlex
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kfuzz.app import main
from kfuzz.core.errors import BindingError, KfuzzError, UsageError
from kfuzz.core.finding import Finding, Target
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import Failure, Kind, ReplayOutcome, State
from kfuzz.engine.config import ReplayConfig, ReplayResult
from kfuzz.engine.replay import replay, shrink
from kfuzz.engine.scripts import script
from kfuzz.engine.search.schedule import named_apart
from kfuzz.store.corpus import Corpus, Stored
from kfuzz.targets.load import LoadedKernel, Source
from tests.e2e.project import HEADER, WRONG
from tests.helpers.findings import finding

RIGHT = "@kernel(ops.relu)\ndef right(x):\n    return torch.relu(x)\n"


def wrong(target: Target, **changes: Any) -> Finding:
    """Return a finding that the kernel `wrong` shows, wherever that lives."""
    spec = TensorSpec((3,), ("d0",), "float32", values=bytes(10) + b"\x80\x3f")
    failure = Failure("C-CMP-03", Kind.VALUE, "y[2] = 0, exactly 1", "y")
    made = finding(
        signature=failure.signature("wrong"), target=target, operator="relu",
        case=Case({"x": spec}), failure=failure,
    )  # fmt: skip
    return replace(made, **changes)


def replayed(project: Path, found: Finding, target: str = "") -> ReplayResult:
    config = ReplayConfig(
        root=project, corpus=project / "corpus", times=1, isolate="none", target=target
    )
    stored = Stored(found, Corpus(project / "corpus").save(found))
    return next(replay([stored], config, stop=threading.Event()))


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Return exit code and text of a run in this process."""
    capsys.readouterr()
    code = main(
        ["run", *words, "--isolate", "none", "--device", "cpu",
         "--seed", "1"]
    )  # fmt: skip
    out, err = capsys.readouterr()
    return code, out + err


@pytest.fixture
def nested(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in a folder that holds a kernel's file; one within is of that name."""
    (project / "kernels.py").write_text(HEADER + WRONG)
    inner = project / "inner"
    inner.mkdir()
    (inner / "pyproject.toml").touch()
    (inner / "kernels.py").write_text(HEADER + RIGHT.replace("right", "wrong"))
    monkeypatch.chdir(inner)
    return inner


def test_the_kernel_that_a_target_names_is_run(project: Path) -> None:
    (project / "old.py").write_text(HEADER + WRONG)
    (project / "new.py").write_text(HEADER + WRONG + RIGHT)
    found = wrong(Target("old.py", "wrong"))
    assert replayed(project, found).outcome is ReplayOutcome.FAILS
    assert replayed(project, found, "new.py").outcome is ReplayOutcome.FAILS
    assert replayed(project, found, "new.py::right").outcome is ReplayOutcome.FIXED
    other = replayed(project, found, "new.py::rihgt")
    assert (other.outcome, "did you mean 'right'" in other.message) == ("ERROR", True)


@pytest.mark.parametrize(
    ("target", "part"),
    [(".", "holds 2 files"), ("empty", "holds no kernel"), ("no.py", "no such file")],
)
def test_a_target_that_is_no_one_kernel_is_a_usage_error(
    target: str, part: str, project: Path
) -> None:
    (project / "empty").mkdir()
    for name in ("a.py", "b.py"):
        (project / name).write_text(HEADER + RIGHT)
    with pytest.raises(UsageError, match=part):
        replayed(project, wrong(Target("a.py", "right")), target)


def test_a_kernel_of_another_operator_decides_nothing(project: Path) -> None:
    text = HEADER + RIGHT.replace("ops.relu", "ops.tanh").replace("relu", "tanh")
    (project / "kernels.py").write_text(text)
    home = Target("kernels.py", "right")
    found = wrong(home, signature=wrong(home).failure.signature("right"))
    for target in ("", "kernels.py::right"):
        result = replayed(project, found, target)
        assert result.outcome is ReplayOutcome.ERROR
        assert "bound to tanh, the finding is of relu" in result.message
    stored = Stored(found, project)
    config = ReplayConfig(root=project, corpus=project / "corpus")
    with pytest.raises(BindingError, match="bound to tanh"):
        next(shrink(stored, config, stop=threading.Event()))


def test_a_finding_has_no_module_imported_that_nobody_trusts(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Installed modules run code as they are imported, whoever names them."""
    site = tmp_path_factory.mktemp("elsewhere")
    (site / "installed.py").write_text("raise SystemExit('imported')\n")
    (project / "own.py").write_text("raise ValueError('imported')\n")
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(site)

    def replay_of(module: str, *trusted: str) -> ReplayResult:
        found = wrong(Target("", "right", module))
        config = ReplayConfig(
            root=project, corpus=project / "corpus", isolate="none", trusted=trusted
        )
        stop = threading.Event()
        return next(replay([Stored(found, project)], config, stop=stop))

    for module in ("installed", "antigravity"):
        result = replay_of(module)
        assert result.outcome is ReplayOutcome.ERROR
        assert "lies outside the project" in result.message
        assert "--trust" in result.message
    assert "importing it raises" in replay_of("installed", "installed").message
    assert "importing it raises" in replay_of("own").message


@pytest.mark.slow
def test_a_kernel_outside_the_project_is_replayed_by_what_is_printed(
    nested: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = run(
        capsys, "../kernels.py", "--max-cases", "25", "--report", "markdown=a.md"
    )
    assert code == 1
    [path] = (nested / "corpus").glob("[!.]*/*")
    stored = Corpus(nested / "corpus").find(str(path))
    assert stored.finding.target == Target("", "wrong")
    assert not [f for f in path.iterdir() if b"kernels.py" in f.read_bytes()]
    [line] = re.findall(r"^  replay +(.*)", text, re.MULTILINE)
    assert line == f"kfuzz replay {stored.finding.id} --target ../kernels.py::wrong"
    assert line in (nested / "a.md").read_text()

    result = replayed(nested, stored.finding)
    assert (result.outcome, "--target" in result.message) == ("ERROR", True)
    target = shlex.split(line)[-1]
    assert replayed(nested, stored.finding, target).outcome is ReplayOutcome.FAILS
    code, text = run(capsys, "../kernels.py", "--max-cases", "1", "--replay")
    assert code == 1
    assert f"FAILS  {stored.finding.id}" in text

    main(["show", stored.finding.id])
    shown = capsys.readouterr().out
    assert f"kfuzz shrink {stored.finding.id} --target FILE.py::wrong" in shown
    with pytest.raises(KfuzzError, match="--target"):
        script(stored.finding)
    made = script(stored.finding, target)
    ast.parse(made)
    assert "'../kernels.py'" in made


def test_shrinking_stores_no_other_kernel_s_minimum(project: Path) -> None:
    (project / "kernels.py").write_text(HEADER + WRONG + RIGHT)
    found = wrong(Target("", "wrong"))
    stored = Stored(found, Corpus(project / "corpus").save(found))
    config = ReplayConfig(
        root=project, corpus=project / "corpus", isolate="none",
        target="kernels.py::right",
    )  # fmt: skip
    with pytest.raises(UsageError, match="the finding is of 'wrong'"):
        next(shrink(stored, config, stop=threading.Event()))
    config = replace(config, target="kernels.py")
    [event] = shrink(stored, config, stop=threading.Event())
    assert getattr(event, "stage", "") == "done"


@pytest.mark.slow
def test_what_is_known_of_a_kernel_hides_nothing_of_its_namesake(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one.py", "two.py"):
        (project / name).write_text(HEADER + WRONG)
    Corpus(project / "corpus").save(wrong(Target("one.py", "wrong"), state=State.KNOWN))
    code, text = run(capsys, "two.py", "--max-cases", "40")
    assert code == 1
    assert "FAIL two.wrong: " in text
    assert "FAILED two.wrong-C-CMP-03-" in text
    assert run(capsys, "one.py", "--max-cases", "40")[0] == 0
    # What is stored of the other keeps its name and is replayed by it.
    [stored] = Corpus(project / "corpus").entries("two.wrong")
    assert isinstance(stored, Stored)
    assert stored.finding.target == Target("two.py", "wrong")
    assert main(["replay", stored.finding.id]) == 1
    assert run(capsys, "two.py", "--max-cases", "40")[0] == 1
    assert len(list(Corpus(project / "corpus").entries())) == 2
    # The file has moved: what is known goes with it.
    (project / "one.py").write_text("import two\n")
    (project / "three.py").write_text(HEADER + WRONG)
    (project / "two.py").unlink()
    assert run(capsys, "three.py", "--max-cases", "40")[0] == 0


PLATFORM = "kfuzz.contracts.platform.torch_"


@pytest.mark.parametrize(
    ("stored", "module", "refused"),
    [
        (Target("here.py", "wrong"), "", False),
        (Target("", "wrong", "here"), "", False),
        (Target("here.py", "wrong"), "here", False),
        (Target("there.py", "wrong"), "here", True),
        (Target("", "wrong", "there"), "", True),
        (Target("gone.py", "wrong"), "", False),
        (Target("", "wrong", "gone.module"), "", False),
        (Target("", "wrong"), "", False),
        (Target("there.py", "wrong", reference="ref.py"), "", False),
        (Target("", "wrong", f"{PLATFORM}cpu"), f"{PLATFORM}cuda", False),
        (Target("", "wrong", f"{PLATFORM}cpu"), "", True),
        (Target("there.py", "wrong"), f"{PLATFORM}cpu", True),
    ],
)
def test_which_entries_are_another_kernel_s(
    stored: Target, module: str, refused: bool, project: Path
) -> None:
    for name in ("here.py", "there.py"):
        (project / name).write_text(HEADER + WRONG)
    corpus = Corpus(project / "corpus")
    corpus.save(wrong(stored))
    bound: Any = SimpleNamespace(name="wrong")
    source = Source(module=module) if module else Source(file=project / "here.py")
    target = Target("" if module else "here.py", "wrong", module)
    for kernel, wanted in (
        (LoadedKernel(bound, target, source), refused),
        (LoadedKernel(bound, Target("", "wrong"), Source()), False),  # a notebook's
    ):
        [made] = named_apart([kernel], corpus.homes, project)
        assert made.name == (made.full_name if wanted else "wrong")
