"""What conformance statements are worth, as text, Markdown and JSON."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kfuzz.contracts.classes import ATTRIBUTION, CLASSES
from kfuzz.core.codec import encode
from kfuzz.core.verdict import ATTRIBUTED, Graded, Soundness, Verdict
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
        instruments=(Instrument.PAGE_GUARDS, Instrument.RACE_CHECK),
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
                **({"evidence": k.tried.evidence} if k.tried else {}),
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
