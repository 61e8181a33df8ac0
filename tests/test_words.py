"""Retired words stand in no name of the product and in no text that its users read."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.size import modules

ROOT = Path(__file__).parents[1]
# In names -> what the field calls it.
NAMES = {
    "accused": "suspected", "admit": "accept", "admits": "accepts",
    "bury": "reap", "charge": "attribution", "charged": "attributed",
    "circumstances": "perturbations", "convicted": "confirmed", "fate": "outcome",
    "grown": "extended", "heeded": "honoured", "heeds": "honours",
    "impostors": "baselines", "keeper": "supervisor", "ledger": "counter",
    "lent": "leased", "manner": "options", "misfit": "mismatch",
    "misfits": "mismatches", "stratum": "bucket", "tenant": "sandboxed process",
    "undecidable": "undecided", "vague": "undecided", "warden": "handle",
}  # fmt: skip
# In texts -> what a reader knows without a dictionary.
TEXTS = NAMES | {
    "admissible": "allowed", "admitted": "accepted", "astray": "out of bounds",
    "charges": "reports", "convict": "confirm", "impostor": "trivial baseline",
    "pulse": "heartbeat", "slack": "padding", "strata": "buckets",
    "surroundings": "environment", "tells": "reports", "told": "reported",
    "twin": "matching correct kernel", "twins": "matching correct kernels",
}  # fmt: skip
# Ordinary English that names alone may not hold.
ORDINARY = {"admit", "charge", "grown", "lent", "manner", "vague"}


def words(text: str) -> set[str]:
    """Return the words of a text, and of names in it, in lower case."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*|[a-z0-9]+", text)
    return {part.lower() for part in parts}


def printed(path: Path) -> Iterator[str]:
    """Yield the texts of a module: its strings, docstrings of commands among them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            # One word may be a key of a document, or a name of another's; a pattern
            # reads what earlier versions printed.
            is_text = " " in node.value.strip() and "(?:" not in node.value
            yield node.value if is_text else ""


@pytest.mark.parametrize("folder", ["kfuzz", "contracts", "strategies"])
def test_names_are_what_the_field_calls_things(folder: str) -> None:
    found = []
    for path in modules(ROOT):
        if path.parts[0] == folder:
            source = io.StringIO((ROOT / path).read_text())
            for token in tokenize.generate_tokens(source.readline):
                if token.type == tokenize.NAME:
                    found += [
                        f"{path}:{token.start[0]}: {token.string}: {NAMES[word]}"
                        for word in words(token.string) & NAMES.keys()
                    ]
    assert not found, "\n".join(found)


def test_texts_need_no_dictionary() -> None:
    pages = [page for page in ROOT.glob("*.md") if page.name != "CHANGELOG.md"]
    for folder in ("contracts", "kfuzz", "strategies"):
        pages += (ROOT / folder).resolve().rglob("*.md")
    texts = [(page, page.read_text()) for page in dict.fromkeys(pages)]
    for folder in ("cli", "report"):
        for path in (ROOT / "kfuzz" / folder).rglob("*.py"):
            texts += [(path, text) for text in printed(path)]
    banned = TEXTS.keys() - ORDINARY
    found = [
        f"{path.relative_to(ROOT)}: {word}: {TEXTS[word]}: …{text[:80]!r}"
        for path, text in texts
        for word in {w.lower() for w in re.findall(r"[A-Za-z]+", text)} & banned
    ]
    assert not found, "\n".join(found)
