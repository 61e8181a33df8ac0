"""Two conformance statements side by side: what differs, and what arbitrates."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from kfuzz.core.statement import Graded, KernelStatement, Statement
from kfuzz.core.verdict import CHARGED, Verdict
from kfuzz.report.text import Section, markdown_page, text_page

T = TypeVar("T")
Place = tuple[str, str]
"""Operator and name of a kernel."""


class Outcome(StrEnum):
    """What becomes of one contract on one kernel in two statements.

    Attributes:
        AGREE: both conform, or both violate.
        DIFFER: one violates; the contract arbitrates.
        APART: it binds one of them only, for they declare different things.
        UNDER_SPECIFIED: one conforms and no clause decides about the other.
        ERROR: one could not be judged.
        OPEN: neither was decided.
    """

    AGREE = "agree"
    DIFFER = "differ"
    APART = "declared apart"
    UNDER_SPECIFIED = "under_specified"
    ERROR = "error"
    OPEN = "open"


@dataclass(frozen=True)
class Difference:
    """One contract about which two statements do not say the same.

    Attributes:
        kernel: its name in this statement.
        contract: identifier, class and operator: "C-EXC-01/gelu".
        outcome: what becomes of it; never `AGREE`.
        here: what this statement says.
        there: what the other says.
        why: one line for people: what arbitrates, or what leaves it open.
    """

    kernel: str
    contract: str
    outcome: Outcome
    here: str
    there: str
    why: str


@dataclass(frozen=True)
class Comparison:
    """Two statements, compared.

    Attributes:
        here: where this one was made.
        there: where the other was.
        environment: fields in which the fingerprints differ, one line each.
        kernels: pairs compared.
        agreed: contracts about which both say the same, conforming or violating.
        differences: those about which they do not.
        declared: what the kernels declare differently.
        only_here: kernels that the other statement lacks.
        only_there: kernels that this one lacks.
    """

    here: str
    there: str
    environment: tuple[str, ...]
    kernels: int
    agreed: int
    differences: tuple[Difference, ...] = ()
    declared: tuple[str, ...] = ()
    only_here: tuple[str, ...] = ()
    only_there: tuple[str, ...] = ()

    def of(self, outcome: Outcome) -> tuple[Difference, ...]:
        """Return the differences of one kind."""
        return tuple(d for d in self.differences if d.outcome is outcome)


def compare(this: Statement, other: Statement) -> Comparison:
    """Compare two statements, kernel by kernel and contract by contract.

    Each kernel was held to what it declares where it ran. Kernels that declare
    different things may well differ; only a contract that one of them breaks is a
    disagreement, and that contract says which of them is wrong.
    """
    pairs = _pairs(this.kernels, other.kernels)
    agreed = 0
    differences: list[Difference] = []
    declared: list[str] = []
    for here, there in pairs:
        apart = declared_apart(here.claims, there.claims)
        declared += [
            f"{here.name}: {keyword} is {a} here, {b} there" for keyword, a, b in apart
        ]
        for name in dict.fromkeys((*here.contracts, *there.contracts)):
            made = _difference(this, other, here, there, name, apart)
            if made is None:
                agreed += 1
            else:
                differences.append(made)
    mine, theirs = {a.kernel for a, _ in pairs}, {b.kernel for _, b in pairs}
    return Comparison(
        here=this.place,
        there=other.place,
        environment=tuple(this.fingerprint.differences(other.fingerprint)),
        kernels=len(pairs),
        agreed=agreed,
        differences=tuple(differences),
        declared=tuple(declared),
        only_here=tuple(k.name for k in this.kernels if k.kernel not in mine),
        only_there=tuple(k.name for k in other.kernels if k.kernel not in theirs),
    )


def _pairs(
    here: tuple[KernelStatement, ...], there: tuple[KernelStatement, ...]
) -> list[tuple[KernelStatement, KernelStatement]]:
    """Return kernels of one operator and name, or of which one is more general."""
    mine = {(k.operator, k.name): k for k in here}
    theirs = {(k.operator, k.name): k for k in there}
    pairs = []
    for key in dict.fromkeys((*mine, *theirs)):
        a = mine.get(key) or general(key, theirs[key].claims, mine)
        b = theirs.get(key) or general(key, mine[key].claims, theirs)
        if a is not None and b is not None:
            pairs.append((a, b))
    return pairs


def general(
    place: Place, claims: Mapping[str, str], others: Mapping[Place, T]
) -> T | None:
    """Return the kernel that takes a format among others; None where there is none.

    Where one side binds a format by a kernel of its own, "…_bfloat16", that is
    compared with the kernel of the other side that takes this format, too.

    Args:
        place: operator and name of the kernel that takes one format.
        claims: what it declares, as text.
        others: the other side's kernels by operator and name.
    """
    operator, name = place
    suffix = f"_{claims.get('dtypes', '')}"
    if not name.endswith(suffix):
        return None
    return others.get((operator, name.removesuffix(suffix)))


def declared_apart(
    here: Mapping[str, str], there: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """Return what is declared differently in two places: keyword, here, there."""
    default = "the default"
    return [
        (keyword, a, b)
        for keyword in dict.fromkeys((*here, *there))
        if (a := here.get(keyword, default)) != (b := there.get(keyword, default))
    ]


def _difference(
    this: Statement,
    other: Statement,
    here: KernelStatement,
    there: KernelStatement,
    name: str,
    apart: list[tuple[str, str, str]],
) -> Difference | None:
    """Return how two kernels differ about one class; None where they agree."""
    a, b = here.contracts.get(name), there.contracts.get(name)
    outcome, why = _outcome(a, b)
    if outcome is Outcome.AGREE:
        return None
    if outcome is Outcome.DIFFER:
        mine = a is not None and a.verdict is Verdict.VIOLATES
        broken, where = (here, this) if mine else (there, other)
        shown = f"{broken.kernel} violates it"
        for fault in broken.findings:
            if fault.contract == name and fault.state in CHARGED:
                shown = fault.message + (" (a listed defect)" if fault.listed else "")
                break
        why = f"{name} arbitrates against {where.device}: {shown}"
    elif outcome is Outcome.APART:
        place = this if a is None else other
        why = f"it was not judged on {place.device}"
        if name in place.classes:
            keywords = ", ".join(f"{keyword}=" for keyword, _, _ in apart)
            why = f"it does not bind {place.device}'s, which differs in {keywords}"
    return Difference(
        here.name, f"{name}/{here.name_in_contracts}", outcome,
        _said(a, name, this), _said(b, name, other), why,
    )  # fmt: skip


def _outcome(a: Graded | None, b: Graded | None) -> tuple[Outcome, str]:
    verdicts = {g.verdict if g is not None else None for g in (a, b)}
    if Verdict.VIOLATES in verdicts:
        alone = verdicts == {Verdict.VIOLATES}
        return (Outcome.AGREE if alone else Outcome.DIFFER), ""
    if Verdict.ERROR in verdicts:
        return Outcome.ERROR, "kfuzz or the machine failed: nothing is known"
    if None in verdicts:
        return Outcome.APART, ""
    if verdicts == {Verdict.CONFORMS}:
        return Outcome.AGREE, ""
    if Verdict.CONFORMS in verdicts:
        return Outcome.UNDER_SPECIFIED, "no clause decided about the other"
    return Outcome.OPEN, "no case decided it on either"


def _said(graded: Graded | None, name: str, statement: Statement) -> str:
    if graded is None:
        return "does not bind" if name in statement.classes else "not judged"
    if not graded.decided and not graded.undecided:
        no_case = graded.verdict is Verdict.NOT_APPLICABLE
        return "no case" if no_case else str(graded.verdict)
    return f"{graded.verdict} ({graded.decided} decided, {graded.undecided} undecided)"


_HEADINGS = {
    Outcome.DIFFER: "differ; a contract arbitrates",
    Outcome.UNDER_SPECIFIED: "under_specified: no clause covers the difference",
    Outcome.ERROR: "could not be judged",
    Outcome.APART: "bind one of them only: they declare different things",
}


def comparison_lines(made: Comparison, *, markdown: bool = False) -> list[str]:
    """Return a comparison for a terminal, or as a page of Markdown."""
    title = f"{made.here} against {made.there}"
    counts = (
        f"{made.agreed} contracts agree, {len(made.of(Outcome.DIFFER))} differ, "
        f"{len(made.of(Outcome.UNDER_SPECIFIED))} under_specified"
    )
    facts = [("kernels compared", str(made.kernels)), ("contracts", counts)]
    sections = [
        *(
            Section(heading, [_line(d) for d in made.of(outcome)])
            for outcome, heading in _HEADINGS.items()
        ),
        Section("undecided on both", list(_open(made))),
        Section("declared differently, which is no disagreement", made.declared),
        Section("only in this statement", made.only_here),
        Section("only in the other", made.only_there),
        Section("environment", made.environment),
    ]
    if markdown:
        return markdown_page(f"Conformance: {title}", facts, sections)
    return text_page(title, facts, sections)


def _open(made: Comparison) -> Iterator[str]:
    """Yield one line per class: whole platforms have such in common."""
    groups: dict[str, list[str]] = {}
    for d in made.of(Outcome.OPEN):
        groups.setdefault(d.contract.partition("/")[0], []).append(d.kernel)
    for name, kernels in groups.items():
        yield f"{name} of {', '.join(kernels)}"


def _line(d: Difference) -> str:
    return f"{d.contract} of {d.kernel}: {d.here} here, {d.there} there; {d.why}"
