"""Patches: how a change is written, what is against one, and how one is applied."""

import ast
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kfuzz.cli.replay import _of_several
from kfuzz.core.errors import UsageError
from kfuzz.core.event import Event, KernelFinished, KernelProof, Proven, ProvenProperty
from kfuzz.core.finding import Finding, Line
from kfuzz.core.verdict import Kind, State
from kfuzz.engine import repair
from kfuzz.engine.config import ReplayConfig, RunConfig
from kfuzz.engine.repair import Repair, apply, repaired
from kfuzz.evaluation.edits import Code, Edit
from kfuzz.evaluation.locating import Draft, Located
from kfuzz.store.corpus import Corpus, Stored
from kfuzz.targets.load import PATCHED
from tests.helpers.findings import finding

TEXT = """\
def kernel(x, n, m):
    # A comment that stays.
    part = load(
        x + offs,  # and one inside
        mask=(offs  <  n),
    )
    if n > m:
        raise ValueError("é")
    return part*2 + half
"""


def edit_of(text: str, node_text: str, made: str) -> Edit:
    """Return the change of the first expression that is written so."""
    tree = ast.parse(text)
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    node: Any = next(
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.expr) and ast.get_source_segment(text, n) == node_text
    )
    module = ast.Module([definition], [])
    code = Code(edit_of, None, definition, module, "kernel.py")  # type: ignore[arg-type]
    return Edit(code, tree, ("body", 0), node, made, 1.0)


@pytest.mark.parametrize(
    ("before", "made", "line"),
    [
        # A sign alone, with the spaces around it as they are written.
        ("offs  <  n", "offs <= n", "        mask=(offs  <=  n),"),
        ("part*2", "part * half", "    return part*half + half"),
        # Parentheses where the place needs them.
        ("2", "half - 1", "    return part*(half - 1) + half"),
        ("n", "n + 1", "    if n + 1 > m:"),
    ],
)
def test_a_change_leaves_the_rest_of_the_text_alone(
    before: str, made: str, line: str
) -> None:
    patched = edit_of(TEXT, before, made).patched(TEXT)
    assert patched is not None
    changed = [x for x in patched.splitlines() if x not in TEXT.splitlines()]
    assert changed == [line]
    assert len(patched.splitlines()) == len(TEXT.splitlines())


def test_a_mask_is_added_behind_what_a_load_is_given() -> None:
    call = (
        "load(\n        x + offs,  # and one inside\n        mask=(offs  <  n),\n    )"
    )
    made = "load(x + offs, mask=offs < n, other=0.0)"
    patched = edit_of(TEXT, call, made).patched(TEXT)
    assert patched is not None
    assert ast.parse(patched).body[0].body[0].value.keywords[1].arg == "other"  # type: ignore[attr-defined]


def test_what_decides_if_it_raises_is_no_patch() -> None:
    assert edit_of(TEXT, "n > m", "n < m").is_of_check
    assert not edit_of(TEXT, "part*2", "part").is_of_check


def draft_of(path: Path, before: str, after: str) -> Draft:
    line = Line(path.name, 1, False, "it passes", 0, "")
    return Draft(line, str(path), before, after)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_patch_is_written_as_the_file_is(tmp_path: Path, newline: str) -> None:
    path = tmp_path / "kernels.py"
    content = "\ufeff" + "x = 1\ny = 2\n".replace("\n", newline)
    path.write_bytes(content.encode())
    path.chmod(0o640)
    draft = draft_of(path, "x = 1\ny = 2\n", "x = 1\ny = 3\n")
    assert apply(draft, tmp_path) == "kernels.py"
    assert path.read_bytes().decode() == content.replace("2", "3")
    assert path.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["kernels.py"]


def test_no_other_file_is_written(tmp_path: Path) -> None:
    inside, outside = tmp_path / "project", tmp_path / "kernels.py"
    inside.mkdir()
    outside.write_text("x = 1\n")
    with pytest.raises(UsageError, match="outside the project"):
        apply(draft_of(outside, "x = 1\n", "x = 2\n"), inside)
    assert outside.read_text() == "x = 1\n"
    changed = inside / "kernels.py"
    changed.write_text("x = 5\n")
    with pytest.raises(UsageError, match="has changed since"):
        apply(draft_of(changed, "x = 1\n", "x = 2\n"), inside)
    assert changed.read_text() == "x = 5\n"
    with pytest.raises(UsageError, match="missing"):
        apply(draft_of(inside / "gone.py", "x = 1\n", "x = 2\n"), inside)


def test_a_file_that_may_not_be_written_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kernels.py"
    path.write_text("x = 1\n")
    monkeypatch.setattr("os.access", lambda *_: False)  # the tests may run as root
    with pytest.raises(UsageError, match="not writable"):
        apply(draft_of(path, "x = 1\n", "x = 2\n"), tmp_path)
    assert path.read_text() == "x = 1\n"


def test_of_several_patches_one_is_chosen(tmp_path: Path) -> None:
    drafts = tuple(draft_of(tmp_path, "1", str(n)) for n in (2, 3))
    made = Repair(Stored(finding(), tmp_path), drafts)
    with pytest.raises(UsageError, match="2 patches pass"):
        _of_several(made, None)
    assert _of_several(made, 2).after == "3"
    with pytest.raises(UsageError, match="no patch 3"):
        _of_several(made, 3)
    assert _of_several(made._replace(drafts=drafts[:1]), None).after == "2"


# What is against a change.

NODE = "kernels.py::softmax"
DRAFTS = 2


def finished(*found: Finding, cases: int = 90, why: str = "") -> KernelFinished:
    return KernelFinished(NODE, "softmax", cases, 1.0, {}, (), found, uncompared=why)


OTHER = replace(finding(), signature=replace(finding().signature, kind=Kind.RACE))


def proof(answer: Proven = Proven.ALL_SIZES) -> KernelProof:
    return KernelProof(NODE, (ProvenProperty("loads in bounds", answer),))


class Asked:
    """Stands in for what looks for a line, searches and proves."""

    def __init__(self, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file = project / "kernels.py"
        self.file.write_text("x = 1\n")
        self.corpus, self.found = Corpus(project / "corpus"), finding()
        self.corpus.save(self.found)
        self.events: list[Event] = [finished()]
        self.proofs = [proof(), proof()]
        self.texts: list[str] = []
        self.during: Callable[[], None] = lambda: None
        drafts = [
            draft_of(self.file, "x = 1\n", f"x = {n + 2}\n") for n in range(DRAFTS)
        ]
        self.located = Located(drafts[0].line, tuple(drafts[:1]))
        self.stop = threading.Event()
        loaded: Any = type("Loaded", (), {})()
        loaded.source = type("Source", (), {"file": self.file, "module": ""})()
        loaded.kernel = type("Kernel", (), {"name": "softmax"})()
        loaded.node_id = NODE
        monkeypatch.setattr(repair, "load_kernel", lambda *_: loaded)
        monkeypatch.setattr(repair, "line_of", lambda *_, **__: self.located)
        monkeypatch.setattr(repair, "hook", lambda _: self.prove)
        self.drafts = drafts

    def prove(self, *_: Any) -> KernelProof:
        return self.proofs.pop(0)

    def search(self, config: RunConfig, *, stop: threading.Event) -> Iterator[Event]:
        import os

        assert config.corpus != self.corpus.root
        file, text = os.environ[PATCHED].split("\n")
        assert file == str(self.file)
        self.texts.append(Path(text).read_text())
        self.during()
        yield from self.events

    def repair(self) -> Repair:
        config = ReplayConfig(self.file.parent, self.corpus.root)
        entry = self.corpus.find(self.found.id)
        return repaired(
            entry, config, self.search, seconds=1.0, stop=self.stop,
            report=lambda text: None,
        )  # fmt: skip


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(tmp_path, monkeypatch)


def test_a_patch_that_passes_is_stored_with_what_was_tried(asked: Asked) -> None:
    made = asked.repair()
    assert asked.texts == ["x = 2\n"]
    [patch] = made.stored.finding.patches
    assert patch.statement == (
        "with this change: 90 cases, 0 findings, 1 properties proved; "
        "it is not a review"
    )
    assert "-x = 1\n+x = 2\n" in patch.diff
    assert asked.corpus.find(asked.found.id).finding.patches == (patch,)
    assert asked.file.read_text() == "x = 1\n"
    assert (made.why, made.rejected) == ("", ())


def test_the_line_is_that_of_a_patch_that_passes(asked: Asked) -> None:
    """What was likeliest before may be refuted by its search."""
    assert asked.located.line is not None
    other = replace(asked.located.line, line=asked.located.line.line + 1, certain=False)
    asked.located = asked.located._replace(line=other)
    found = asked.repair().stored.finding
    assert found.line is not None
    assert found.line.line == found.patches[0].line == asked.drafts[0].line.line


def test_two_that_pass_are_two(asked: Asked) -> None:
    asked.located = asked.located._replace(drafts=tuple(asked.drafts))
    asked.proofs = [proof(), proof(), proof()]
    made = asked.repair()
    assert asked.texts == ["x = 2\n", "x = 3\n"]
    assert len(made.drafts) == len(made.stored.finding.patches) == DRAFTS


@pytest.mark.parametrize(
    ("events", "proofs", "why"),
    [
        ([finished(OTHER)], None, "finds"),
        ([finished(finding())], None, "finds"),  # the fault itself is still there
        ([finished(why="all were rejected")], None, "compares nothing"),
        ([finished(cases=0)], None, "no case"),
        ([], None, "no case"),
        ([finished()], [proof(), proof(Proven.OPEN)], "not proved any more"),
        ([finished()], [proof(), proof(Proven.REFUTED)], "not proved any more"),
    ],
)
def test_what_is_against_a_change(
    asked: Asked, events: list[Event], proofs: list[KernelProof] | None, why: str
) -> None:
    asked.events = events
    asked.proofs = proofs or asked.proofs
    made = asked.repair()
    assert not made.drafts
    assert not made.stored.finding.patches
    [patch] = made.rejected
    assert why in patch.statement
    assert made.why == "no change passes every gate"


@pytest.mark.parametrize("kernel", ["softmax", "softmax.backward"])
def test_what_the_corpus_has_besides_is_nothing_new(asked: Asked, kernel: str) -> None:
    """Of its gradients as well, which a search judges beside it."""
    other = replace(OTHER, signature=replace(OTHER.signature, kernel=kernel))
    asked.events = [finished(other)]
    asked.corpus.save(replace(other, state=State.FIXED))
    assert not asked.repair().drafts  # it was fixed, and fails again
    asked.corpus.replace(other, other)
    asked.proofs = [proof(), proof()]
    made = asked.repair()
    assert len(made.drafts) == 1
    [patch] = made.stored.finding.patches
    assert "1 found, all in the corpus" in patch.statement


def test_an_interrupt_leaves_nothing_half_done(asked: Asked) -> None:
    asked.during = asked.stop.set
    made = asked.repair()
    assert not made.drafts
    assert made.why == "it was interrupted"
    assert not made.stored.finding.patches
    assert asked.file.read_text() == "x = 1\n"


def test_what_cannot_be_repaired_says_why(asked: Asked) -> None:
    asked.located = Located(why="it runs no Triton kernel whose source is at hand")
    with pytest.raises(UsageError, match="no Triton kernel"):
        asked.repair()
    asked.located = Located(asked.drafts[0].line)
    assert "no change of one expression" in asked.repair().why
    fixed = replace(asked.found, state=State.FIXED)
    asked.corpus.replace(asked.found, fixed)
    with pytest.raises(UsageError, match="its state is fixed"):
        asked.repair()
