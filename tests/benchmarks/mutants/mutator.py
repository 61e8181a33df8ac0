"""Mutants: every rule at every place of every correct kernel where it has an edit."""

import ast
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from tests.benchmarks.mutants import place_rules, special_rules, value_rules
from tests.benchmarks.mutants.rules import Edit, Rule, Site, span
from tests.benchmarks.mutants.specimens import (
    SPECIMENS,
    Specimen,
    is_kernel,
    live,
)

_BOOKS: Final = (*place_rules.BOOKS, *value_rules.BOOKS, *special_rules.BOOKS)
RULES: Final[tuple[Rule, ...]] = tuple(rule for book in _BOOKS for rule in book.rules)
FAMILIES: Final = tuple(dict.fromkeys(rule.family for rule in RULES))


@dataclass(frozen=True)
class Mutant:
    """A correct kernel with one edit.

    Attributes:
        id: kernel, rule, and number among those of both.
        specimen: the correct kernel.
        rule: what was done.
        line: of the file, where.
        text: the whole file.
    """

    id: str
    specimen: Specimen = field(repr=False)
    rule: Rule = field(repr=False)
    line: int
    text: str = field(repr=False)

    @property
    def diff(self) -> str:
        """The edit as a diff, without heads."""
        lines = difflib.unified_diff(
            self.specimen.text.splitlines(), self.text.splitlines(), lineterm="", n=0
        )
        return "\n".join(x for x in lines if not x.startswith(("---", "+++", "@@")))

    @property
    def file(self) -> str:
        """Name of its file."""
        return self.id.replace("/", "__").replace("-", "_") + ".py"

    @property
    def backends(self) -> tuple[str, ...]:
        """Where it is searched."""
        both = self.specimen.backends
        return tuple(b for b in both if b in self.rule.backends)


@cache
def mutants() -> tuple[Mutant, ...]:
    """Return every mutant, in an order that the sources alone decide.

    What is the same edit of the same function is one mutant, that of the first kernel
    that has the function.
    """
    return mutants_of(SPECIMENS)


def mutants_of(specimens: Sequence[Specimen]) -> tuple[Mutant, ...]:
    """Return the mutants of some correct kernels, as `mutants` does."""
    made: list[Mutant] = []
    seen: set[tuple[bytes, bytes]] = set()
    for specimen in specimens:
        counts: dict[str, int] = {}
        for rule, site, edit in _edits(specimen):
            text = applied(specimen.text, edit)
            key = _function(site, specimen.text), _function(site, text)
            if key in seen or key[0] == key[1]:
                continue
            seen.add(key)
            number = counts[rule.name] = counts.get(rule.name, 0) + 1
            id = f"{specimen.name}/{rule.name}/{number}"
            line = min(node.lineno for node, _ in edit)  # type: ignore[attr-defined]
            made.append(Mutant(id, specimen, rule, line, text))
    return tuple(made)


def _function(site: Site, text: str) -> bytes:
    """Return the function of a site as it stands in its file, or in an edited one."""
    start, end = span(site.text, site.function)
    after = len(site.text.encode()) - end
    return text.encode()[start : len(text.encode()) - after]


def _edits(specimen: Specimen) -> Iterator[tuple[Rule, Site, Edit]]:
    sites = list(_sites(specimen))
    for rule in RULES:
        for site in sites:
            for edit in rule.rewrites(site):
                yield rule, site, edit


def _sites(specimen: Specimen) -> Iterator[Site]:
    for function in specimen.functions():
        above: dict[int, ast.AST] = {
            id(child): node
            for node in ast.walk(function)
            for child in ast.iter_child_nodes(node)
        }
        for statement in function.body[_is_text(function.body[0]) :]:
            for node in live(statement, specimen.known):
                chain, outer = [], above.get(id(node))
                while outer is not None:
                    chain.append(outer)
                    outer = above.get(id(outer))
                yield Site(
                    node, tuple(chain), function, is_kernel(function), specimen.text
                )


def _is_text(node: ast.stmt) -> bool:
    """Whether a statement is a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def applied(text: str, edit: Edit) -> str:
    """Return the source with nodes replaced."""
    raw = text.encode()
    spans = sorted(((span(text, node), new) for node, new in edit), reverse=True)
    for (start, end), new in spans:
        raw = raw[:start] + new.encode() + raw[end:]
    return raw.decode()


def written(folder: Path, chosen: Sequence[Mutant]) -> None:
    """Write the files of mutants and of their correct kernels."""
    folder.mkdir(parents=True, exist_ok=True)
    for mutant in chosen:
        (folder / mutant.file).write_text(mutant.text, encoding="utf-8")
    for specimen in dict.fromkeys(m.specimen.name for m in chosen):
        text = next(s.text for s in SPECIMENS if s.name == specimen)
        (folder / f"{specimen}.py").write_text(text, encoding="utf-8")
