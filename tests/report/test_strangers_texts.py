"""What a stranger's finding or statement says drives no terminal and no page."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kfuzz.app import main
from kfuzz.core.codec import decode, encode
from kfuzz.core.errors import DecodeError
from kfuzz.store.corpus import FINDING, FIRST, Corpus, read_entry
from tests.helpers.findings import finding

# An escape sequence in both forms, one that turns the line, HTML, a link and an image.
PAYLOAD = "\x1b[31m\x9b2J\u202e<img src=x>![a](http://b)](http://c)\r\n# d"
FORBIDDEN = ("\x1b", "\x9b", "\u202e", "\r")
MARKUP = ("<img", "](http")


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        if isinstance(inner, dict | list):
            yield from leaves(inner, (*place, key))
        elif isinstance(inner, str):
            yield (*place, key)


def poisoned(value: Any, reads: Callable[[Any], object]) -> tuple[Any, int]:
    """Return a document with the payload in every text in which it is taken."""
    count = 0
    for *owners, key in list(leaves(value)):
        owner = value
        for each in owners:
            owner = owner[each]
        before, owner[key] = owner[key], owner[key] + PAYLOAD
        try:
            reads(value)
            count += 1
        except DecodeError:
            owner[key] = before
    return value, count


def require_inert(text: str, *, page: bool = False) -> None:
    assert not [c for c in FORBIDDEN if c in text]
    if page:
        outside = "".join(text.split("```")[::2])  # what is fenced is shown as it is
        assert not [m for m in MARKUP if m in outside]


def test_a_statement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    statements = pytest.importorskip("tests.helpers.statements")
    whole = encode(statements.statement())
    made, count = poisoned(whole, lambda v: decode(statements.Statement, v))
    assert count > 5
    path = tmp_path / "statement.json"
    path.write_text(json.dumps({"format": 1, "statement": made}))
    for form in ("text", "markdown", "json"):
        main(["grade", "--statement", str(path), "--format", form])
        out, err = capsys.readouterr()
        assert "img src" in out
        require_inert(out + err, page=form == "markdown")


def test_a_finding(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Corpus(tmp_path / "corpus").save(finding())
    (folder / FIRST).unlink()

    def reads(document: Any) -> None:
        (folder / FINDING).write_text(json.dumps(document))
        read_entry(folder)

    document = json.loads((folder / FINDING).read_text())
    made, count = poisoned(document, reads)
    reads(made)
    assert count > 5
    for words in (
        ["corpus", "list"], ["corpus", "list", "--format", "json"], ["corpus", "check"],
        ["show", str(folder)], ["show", str(folder), "--format", "json"],
    ):  # fmt: skip
        main(words)
        out, err = capsys.readouterr()
        require_inert(out + err)
    kinds = ("html", "jsonl", "junit", "markdown", "sarif")
    for kind in kinds:
        assert main(["report", f"{kind}=out.{kind}"]) == 0
        text = (tmp_path / f"out.{kind}").read_text()
        assert "img src" in text
        require_inert(text, page=kind == "markdown")
        if kind == "html":
            assert "<img" not in text
