"""What conformance statements are worth, as text, Markdown and JSON; two compared."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from kfuzz.contracts.classes import ATTRIBUTION, CLASSES
from kfuzz.core.codec import encode
from kfuzz.core.statement import Graded, Soundness
from kfuzz.core.verdict import ATTRIBUTED, Verdict
from kfuzz.features.lab.grade.statement import (
    Fault,
    Instrument,
    KernelStatement,
    KnownDefect,
    Statement,
)
from kfuzz.report.promises import proof_lines, proof_summary
from kfuzz.report.tables import verdict_lines
from kfuzz.report.text import Section, markdown_page, one_line, text_page

# Conformance levels: what a statement is worth, as a pure function of it.
#
# By analogy with the security levels of IEC 62443-3-3, which ask what adversary a
# system withstands, a level asks what user a kernel withstands: one who uses it as it
# was tried out, one who gives it any declared input, one who calls it in any order and
# company, one who spends a night to break it. contracts/README.md says why each demands
# what it does.


@dataclass(frozen=True)
class Level:
    """One level; it demands what those below it demand, too.

    Attributes:
        number: 1 to 4.
        title: what is withstood, in a few words.
        classes: contract classes that it adds.
        core: of these, the ones without whose calibration it is not granted; an
            uncalibrated contract of another class does not count.
        decided: least number of cases that decided each class of a core, and a third
            of it each other one, on which a share of the cases bears: n cases without
            a failure refute a share of failing ones above 3 / n (at 95 %).
        cases: least number of cases judged.
        instruments: what must have looked at the kernel besides its results.
    """

    number: int
    title: str
    classes: tuple[str, ...]
    core: frozenset[str]
    decided: int
    cases: int
    instruments: tuple[Instrument, ...] = ()


def _level(number: int, title: str, **demanded: Any) -> Level:
    """Return a level with the classes that declare it."""
    added = [c for c in ATTRIBUTION if c.level == number]
    core = frozenset(c.id for c in added if c.core)
    return Level(number, title, tuple(c.id for c in added), core, **demanded)


LEVELS: Final = (
    _level(1, "casual use: ordinary input, whatever its size", decided=30, cases=100),
    _level(2, "any input of the declared domain, in one call", decided=30, cases=300),
    _level(
        3,
        "calls before it and beside it, in the orders that are tried",
        decided=30,
        cases=1_000,
    ),
    _level(
        4,
        "a long search with instruments on the device",
        decided=300,
        cases=10_000,
        instruments=(
            Instrument.PAGE_GUARDS,
            Instrument.RACE_CHECK,
            Instrument.SANITIZER,
        ),
    ),
)

# Without a case these demand nothing.
_CONDITIONAL: Final = frozenset(c.id for c in ATTRIBUTION if c.of_some_kernels)


@dataclass(frozen=True)
class Standing:
    """The level of one kernel, and why it is not higher.

    Attributes:
        level: 0 to 4.
        lacks: what the next level demands that is not there, one line each.
        left_out: contract classes that the level, or the next, does not count for
            want of calibration.
    """

    level: int
    lacks: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The level's name: "KL-2"."""
        return f"KL-{self.level}"


def standing_of(statement: Statement, kernel: KernelStatement) -> Standing:
    """Return the level that a kernel reaches in a statement.

    Args:
        statement: for the classes in force and the instruments.
        kernel: one of its kernels.
    """
    reached = 0
    left_out: tuple[str, ...] = ()
    for level in LEVELS:
        lacks, left_out = _judged(statement, kernel, level)
        if lacks:
            return Standing(reached, lacks, left_out)
        reached = level.number
    return Standing(reached, (), left_out)


def is_judged(kernel: KernelStatement) -> bool:
    """Whether values of a kernel were compared, where the statement asks for it."""
    if any(fault.state in ATTRIBUTED for fault in kernel.findings):
        return True
    every = kernel.contracts
    if not kernel.cases:
        return False
    wanted = {n for n in every if n in CLASSES and CLASSES[n].compares} or set(every)
    return any(graded.decided for n, graded in every.items() if n in wanted)


def weakest(statement: Statement) -> Standing | None:
    """Return the lowest standing among a statement's kernels; None without any.

    A platform is worth what its weakest kernel is.
    """
    every = [standing_of(statement, k) for k in statement.kernels]
    return min(every, key=lambda standing: standing.level, default=None)


def _judged(
    statement: Statement, kernel: KernelStatement, level: Level
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what a kernel lacks for a level, and what is not counted."""
    lacks, left_out = [], []
    if kernel.cases < level.cases:
        lacks.append(f"{kernel.cases} of {level.cases} cases were judged")
    if (tried := kernel.tried) and tried.few_cases:
        lacks.append(f"{tried.cases} of {tried.LEAST_CASES} cases decided a contract")
    if tried and tried.few_structures:
        lacks.append(f"{tried.structures} of {tried.LEAST_STRUCTURES} structures came")
    for below in LEVELS[: level.number]:
        for name in below.classes:
            graded = kernel.contracts.get(name)
            if graded is None:
                # What does not bind the kernel demands nothing of it; what was left
                # out of the run is not known.
                if name not in statement.classes:
                    lacks.append(f"{name} was not judged")
                continue
            if name in _CONDITIONAL and graded.verdict is Verdict.NOT_APPLICABLE:
                continue
            if graded.calibration is not Soundness.UNCALIBRATED:
                least = level.decided if name in below.core else level.decided // 3
                lacks += _shortfall(name, graded, least)
            elif graded.verdict is Verdict.VIOLATES:
                lacks.append(f"{name} is violated")
            elif name in below.core:
                lacks.append(f"{name} is uncalibrated")
            else:
                left_out.append(name)
    if level.classes and not kernel.contracts.keys() & set(level.classes):
        lacks.append("no contract binds it")
    missing = [i for i in level.instruments if i not in statement.instruments]
    lacks += [f"no {instrument}" for instrument in missing]
    return tuple(lacks), tuple(left_out)


def _shortfall(name: str, graded: Graded, least: int) -> list[str]:
    """Return why a contract that counts does not support a level, if so."""
    if graded.verdict is Verdict.VIOLATES:
        return [f"{name} is violated"]
    if graded.calibration is Soundness.UNSOUND:
        return [f"{name} is unsound: calibration falsifies it"]
    if graded.verdict is Verdict.ERROR:
        return [f"{name} could not be judged"]
    if graded.verdict is not Verdict.CONFORMS:
        return [f"{name} was decided by no case"]
    if graded.decided < least:
        return [f"{name} was decided by {graded.decided} of {least} cases"]
    return []


UNCALIBRATED: Final = "no calibration: an uncalibrated contract does not count"
# Of a SHA-256, what distinguishes versions of a file apart at a glance.
_DIGITS: Final = 12
_COUNT: Final = re.compile(r"\b\d+ of\b")


def statement_document(statement: Statement) -> dict[str, Any]:
    """Return the JSON form: the statement, and the levels that follow from it."""
    lowest = weakest(statement)
    return {
        "level": lowest.name if lowest else None,
        "levels": {
            k.kernel: {
                "level": s.name,
                "lacks": list(s.lacks),
                "left_out": list(s.left_out),
                **({"evidence": str(k.tried.evidence)} if k.tried else {}),
            }
            for k in statement.kernels
            if (s := standing_of(statement, k))
        },
        "statement": encode(statement),
    }


def statement_page(statement: Statement, *, markdown: bool = False) -> list[str]:
    """Return a statement for a terminal, or as a page of Markdown."""
    draw = markdown_page if markdown else text_page
    sections = [*_kernels(statement), *_rest(statement)]
    return draw(_title(statement), _facts(statement), sections)


def _title(statement: Statement) -> str:
    made = statement.fingerprint
    if statement.platform:
        return f"Conformance statement: torch {made.torch} on {statement.device}"
    count = len(statement.kernels)
    noun = "kernel" if count == 1 else "kernels"
    return f"Conformance statement: {count} {noun} on {statement.device}"


def _facts(statement: Statement) -> Iterator[tuple[str, str]]:
    made, lowest = statement.fingerprint, weakest(statement)
    if lowest is not None:
        yield "level", f"{lowest.name}, that of the weakest kernel"
    yield "calibration", _calibration(statement)
    yield "device", made.device or statement.device
    if made.driver:
        yield "driver", made.driver
    names = ("kfuzz", "torch", "triton", "numpy", "python", "system")
    known = [f"{n} {v}" for n in names if (v := getattr(made, n))]
    yield "versions", ", ".join(known)
    yield "budget", _budget(statement)
    yield "looked at by", ", ".join(("results", *statement.instruments))
    if statement.interrupted:
        yield "interrupted", "the run was cut short"


def _calibration(statement: Statement) -> str:
    made = statement.calibration
    if made is None:
        return UNCALIBRATED
    text = (
        f"{made.sound} contracts sound on {made.device} (up to {made.cases} cases for "
        f"a violating witness, {made.conforming_cases} for a conforming one, seed "
        f"{made.seed})"
    )
    if made.unsound:
        text += f"; unsound: {', '.join(made.unsound)}"
    return f"{text}; others do not count"


def _budget(statement: Statement) -> str:
    parts = [f"seed {statement.seed}"]
    if statement.max_cases is not None:
        parts.append(f"{statement.max_cases} cases for each kernel")
    if statement.max_time is not None:
        parts.append(f"{statement.max_time:g} s for the run")
    return f"{', '.join(parts)}; it took {statement.elapsed_s:g} s"


def _kernels(statement: Statement) -> Iterator[Section]:
    """Yield a table of the kernels, then the verdicts of each."""
    rows = [("kernel", "operator", "level", "cases", "worst ratio", "violates")]
    sections = []
    for k in statement.kernels:
        standing = standing_of(statement, k)
        broken = [n for n, g in k.contracts.items() if g.verdict is Verdict.VIOLATES]
        ratio, violated = f"{k.worst_ratio:.2g}", ", ".join(broken)
        rows.append((k.name, k.operator, standing.name, str(k.cases), ratio, violated))
        lines = list(verdict_lines(k.contracts, tried=k.tried))
        if standing.left_out:
            lines.append(f"not counted, uncalibrated: {', '.join(standing.left_out)}")
        sections.append(Section(f"{k.kernel}: {standing.name}", lines))
    yield Section("Kernels", rows=rows, numbers=(3, 4))
    yield from sections


def _rest(statement: Statement) -> list[Section]:
    """Return what is said of all kernels together, on every page."""
    kernels = statement.kernels
    sources = [(k.name, f"{k.worst_ratio:.2g}", _short(k.source)) for k in kernels]
    bounds = dict.fromkeys((k.operator, k.bound) for k in kernels)
    found = [f"`{k.name}`: {_found(f)}" for k in kernels for f in k.findings]
    declared = [
        f"`{k.name}`: {', '.join(f'{n}={v}' for n, v in k.claims.items())}"
        for k in kernels
        if k.claims
    ]
    refused = [
        f"`{k.name}`: {r.reason} ({r.cases} cases)"
        + (f"; declare {r.remedy}" if r.remedy else "")
        for k in kernels
        for r in k.refusals
    ]
    return [
        Section("Findings", found),
        Section("Listed defects", list(_defects(statement))),
        Section("What the next level lacks", list(_lacking(statement))),
        Section("Proofs", list(_proofs(statement))),
        Section("Declarations beside the defaults", declared),
        Section("Rejections", refused),
        Section("Bounds", rows=[("operator", "bound"), *bounds]),
        Section("Sources", rows=[("kernel", "worst ratio", "source"), *sources]),
        Section("Notices", statement.notices),
    ]


def _found(fault: Fault) -> str:
    state = "" if fault.state in ATTRIBUTED else f" ({fault.state}: not counted)"
    listed = " (a listed defect)" if fault.listed else ""
    text = f"{fault.contract} {fault.kind}{listed}{state}: {fault.message}"
    return f"{one_line(text)}; {fault.id}"


def _defects(statement: Statement) -> Iterator[str]:
    """Yield each listed defect once, with its kernels."""
    groups: dict[KnownDefect, list[str]] = {}
    for kernel in statement.kernels:
        found = {f.contract for f in kernel.findings}
        for defect in kernel.defects:
            mark = " (found)" if defect.contract in found else ""
            groups.setdefault(defect, []).append(f"`{kernel.name}`{mark}")
    for defect, names in groups.items():
        text = f"{defect.where}: {defect.evidence}"
        yield f"{defect.contract}, {', '.join(names)}: {text}"


def _lacking(statement: Statement) -> Iterator[str]:
    """Yield what holds kernels back, each with the kernels that lack it."""
    groups: dict[tuple[int, str], list[tuple[str, str]]] = {}
    for kernel in statement.kernels:
        standing = standing_of(statement, kernel)
        for lack in standing.lacks:
            # However many cases there were, it is one lack.
            key = (standing.level + 1, _COUNT.sub("too few of", lack))
            groups.setdefault(key, []).append((kernel.name, lack))
    for (level, text), lacking in sorted(groups.items()):
        shown = lacking[0][1] if len({lack for _, lack in lacking}) == 1 else text
        whole = len(lacking) == len(statement.kernels)
        names = ", ".join(f"`{name}`" for name, _ in lacking)
        yield f"KL-{level}: {shown}: {'every kernel' if whole else names}"


def _proofs(statement: Statement) -> Iterator[str]:
    for kernel in statement.kernels:
        if kernel.proof is not None:
            yield f"{kernel.kernel}: {proof_summary(kernel.proof)}"
            lines = proof_lines(kernel.proof, premises=True)
            yield from (f"{kernel.kernel}: {line.strip()}" for line in lines)


def _short(source: str) -> str:
    kind, colon, digest = source.partition(":")
    return f"{kind}:{digest[:_DIGITS]}" if colon else source


# Two conformance statements side by side: what differs, and what arbitrates.

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
            if fault.contract == name and fault.state in ATTRIBUTED:
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
