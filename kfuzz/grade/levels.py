"""Conformance levels: what a statement is worth, as a pure function of it.

By analogy with the security levels of IEC 62443-3-3, which ask what adversary a system
withstands, a level asks what user a kernel withstands: one who uses it as it was tried
out, one who gives it any declared input, one who calls it in any order and company,
one who spends a night to break it. contracts/README.md says why each demands what it
does.
"""

from dataclasses import dataclass
from typing import Any, Final

from kfuzz.contracts.classes import ATTRIBUTION, CLASSES
from kfuzz.core.calibration import Soundness
from kfuzz.core.statement import Graded, Instrument, KernelStatement, Statement
from kfuzz.core.verdict import CHARGED, Tried, Verdict


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


def standing_of(
    statement: Statement, kernel: KernelStatement, *, trusting: bool = False
) -> Standing:
    """Return the level that a kernel reaches in a statement.

    Args:
        statement: for the classes in force and the instruments.
        kernel: one of its kernels.
        trusting: take uncalibrated contracts for sound: what the level would be if
            they were.
    """
    reached = 0
    left_out: tuple[str, ...] = ()
    for level in LEVELS:
        lacks, left_out = _judged(statement, kernel, level, trusting)
        if lacks:
            return Standing(reached, lacks, left_out)
        reached = level.number
    return Standing(reached, (), left_out)


def is_judged(kernel: KernelStatement) -> bool:
    """Whether values of a kernel were compared, where the statement asks for it."""
    if any(fault.state in CHARGED for fault in kernel.findings):
        return True
    every = kernel.contracts
    if not kernel.cases:
        return False
    wanted = {n for n in every if n in CLASSES and CLASSES[n].compares} or set(every)
    return any(graded.decided for n, graded in every.items() if n in wanted)


def weakest(statement: Statement, *, trusting: bool = False) -> Standing | None:
    """Return the lowest standing among a statement's kernels; None without any.

    A platform is worth what its weakest kernel is.
    """
    every = [standing_of(statement, k, trusting=trusting) for k in statement.kernels]
    return min(every, key=lambda standing: standing.level, default=None)


def _judged(
    statement: Statement, kernel: KernelStatement, level: Level, trusting: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what a kernel lacks for a level, and what is not counted."""
    lacks, left_out = [], []
    if kernel.cases < level.cases:
        lacks.append(f"{kernel.cases} of {level.cases} cases were judged")
    if kernel.tried is not None:
        lacks += _barely(kernel.tried)
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
            if _counts(graded, trusting):
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


def _barely(tried: Tried) -> list[str]:
    """Return why a kernel was tried too little for any level, if so."""
    lacks = []
    if tried.few_cases:
        lacks.append(f"{tried.cases} of {tried.LEAST_CASES} cases decided a contract")
    if tried.few_structures:
        lacks.append(f"{tried.structures} of {tried.LEAST_STRUCTURES} structures came")
    return lacks


def _counts(graded: Graded, trusting: bool) -> bool:
    return trusting or graded.calibration is not Soundness.UNCALIBRATED


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
