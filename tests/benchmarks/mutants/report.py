"""The tables: what each tool killed, by family, and what is left."""

import fnmatch
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from tests.benchmarks.mutants.asking import COMPARISON, KFUZZ, LONGER, NOT_RUN, START
from tests.benchmarks.mutants.campaign import LEAST_COMPARED, State
from tests.benchmarks.mutants.explained import CHARGED, EXPLAINED
from tests.benchmarks.mutants.mutator import FAMILIES, Mutant


class Kind(StrEnum):
    """What a mutant is.

    STILLBORN raises on an ordinary input or does not compile. EQUIVALENT gave the bits
    of the correct kernel in every case of the comparison, and was charged with nothing;
    ADMISSIBLE gave others, all within what the contract admits. LEFT was charged in the
    comparison or a longer search, though not in this one; UNKNOWN has not been compared
    on enough cases.
    """

    STILLBORN = "stillborn"
    KILLED = "killed"
    EQUIVALENT = "equivalent"
    ADMISSIBLE = "admissible"
    LEFT = "left"
    UNKNOWN = "unknown"


CONFORMING: Final = (Kind.EQUIVALENT, Kind.ADMISSIBLE)


@dataclass(frozen=True)
class Row:
    """What one tool made of one kernel.

    Attributes:
        tool: its name.
        unit: id of the mutant, or name of the correct kernel.
        found: whether it called the kernel wrong.
        cases: inputs tried.
        seconds: until then, or until the search ended.
        message: what was seen.
    """

    tool: str
    unit: str
    found: bool
    cases: int
    seconds: float
    message: str


@dataclass(frozen=True)
class Left:
    """A mutant that kfuzz has not killed.

    Attributes:
        id: of the mutant.
        kind: what it is.
        diff: the edit.
        cases: on which it was compared.
        ratio: its greatest error over what is admitted, where bits differ.
        first: the first case in which bits differ, or with which it was charged.
        charged: with what, in the comparison; "" if with nothing.
        longer: what a longer search by kfuzz showed, "" if nothing.
        why: what is known of it, "" if nothing is.
        by: tools that called it wrong.
    """

    id: str
    kind: Kind
    diff: str
    cases: int
    ratio: float
    first: str
    charged: str
    longer: str
    why: str
    by: tuple[str, ...]


@dataclass(frozen=True)
class Told:
    """Everything that the tables hold.

    Attributes:
        device: where kernels ran.
        head: settings and machine.
        tools: in order.
        rows: every search.
        kinds: of every mutant that was taken up, by id.
        families: of every such mutant, by id.
        kernels: the correct kernel of each, by id.
        left: those that kfuzz has not killed.
        correct: names of the correct kernels that were searched.
        stillborn: what those that do not start raise, by id.
        errors: what kept searches from a result.
    """

    device: str
    head: dict[str, Any]
    tools: tuple[str, ...]
    rows: tuple[Row, ...]
    kinds: dict[str, Kind]
    families: dict[str, str]
    kernels: dict[str, str]
    left: tuple[Left, ...]
    correct: tuple[str, ...]
    stillborn: dict[str, str]
    errors: tuple[str, ...]

    def false_alarms(self, tool: str) -> list[Row]:
        """Return what a tool said of correct kernels."""
        own = set(self.correct)
        return [r for r in self.rows if r.found and r.tool == tool and r.unit in own]

    def searched(self, tool: str, family: str = "") -> list[Row]:
        """Return a tool's searches of mutants that can be killed."""
        return [
            r
            for r in self.rows
            if r.tool == tool
            and self.kinds.get(r.unit) not in (None, *CONFORMING)
            and family in ("", self.families[r.unit])
        ]


def told(every: Sequence[Mutant], state: State, tools: Sequence[str]) -> Told:
    """Gather what is known of mutants and of their correct kernels."""
    by_id = {m.id: m for m in every}
    correct = [n for n in {m.specimen.name: 0 for m in every} if n in state.units]
    rows: list[Row] = []
    errors: list[str] = []
    unavailable: dict[str, str] = {}
    for unit in (*correct, *by_id):
        for tool, made in state.units.get(unit, {}).get("searches", {}).items():
            if tool not in tools:
                continue
            if error := made.get("error"):
                if error.startswith(NOT_RUN):
                    unavailable[tool] = error
                else:
                    errors.append(f"{unit}, {tool}: {error}")
            else:
                rows.append(Row(tool=tool, unit=unit, **made))
    kinds: dict[str, Kind] = {}
    left: list[Left] = []
    for id, mutant in by_id.items():
        known = state.units.get(id)
        if known is None or known["digest"] != mutant.digest or START not in known:
            continue
        kinds[id] = _kind(known, id)
        if kinds[id] in (Kind.STILLBORN, Kind.KILLED):
            continue
        compared = known.get(COMPARISON, {})
        for what in (LONGER, COMPARISON):
            if error := known.get(what, {}).get("error"):
                errors.append(f"{id}, {what}: {error}")
        if KFUZZ in known["searches"]:
            left.append(
                Left(
                    id=id,
                    kind=kinds[id],
                    diff=mutant.diff,
                    cases=compared.get("cases", 0),
                    ratio=compared.get("ratio", 0.0),
                    first=compared.get("first", ""),
                    charged=compared.get("charged", ""),
                    longer=_found(known.get(LONGER, {})),
                    why=why(id),
                    by=tuple(r.tool for r in rows if r.unit == id and r.found),
                )
            )
    return Told(
        device=state.head["device"],
        head=state.head,
        tools=tuple(t for t in tools if t not in unavailable),
        rows=tuple(rows),
        kinds=kinds,
        families={m.id: m.rule.family for m in every},
        kernels={m.id: m.specimen.name for m in every},
        left=tuple(left),
        correct=tuple(correct),
        stillborn={
            id: state.units[id][START]["raised"]
            for id, kind in kinds.items()
            if kind is Kind.STILLBORN
        },
        errors=(*unavailable.values(), *errors),
    )


def _kind(known: dict[str, Any], id: str) -> Kind:
    if known[START].get("raised"):
        return Kind.STILLBORN
    if known["searches"].get(KFUZZ, {}).get("found"):
        return Kind.KILLED
    compared = known.get(COMPARISON, {})
    longer = known.get(LONGER, {}).get("found")
    if longer or compared.get("charged") or id in CHARGED:
        return Kind.LEFT
    if compared.get("cases", 0) < LEAST_COMPARED:
        return Kind.UNKNOWN
    return Kind.ADMISSIBLE if compared["differing"] else Kind.EQUIVALENT


def _found(longer: dict[str, Any]) -> str:
    if not longer.get("found"):
        return ""
    cases, seconds = longer["cases"], longer["seconds"]
    text = "found by a longer search"
    return f"{text} after {cases} cases, {seconds:.0f} s: {longer['message']}"


def why(id: str) -> str:
    """Return what is known of a mutant that is left, "" if nothing is."""
    found = (text for glob, text in EXPLAINED.items() if fnmatch.fnmatchcase(id, glob))
    return next(found, "")


def tables(told: Told, *, diffs: bool = True) -> str:
    """Return all tables, as they stand in the README.

    Args:
        told: what they hold.
        diffs: whether the edits of what kfuzz left are shown.
    """
    parts = [_summary(told), _tools(told), _families(told)]
    if told.left:
        parts.append(_left(told, diffs=diffs))
    if told.errors:
        parts.append("\n".join(f"PROBLEM: {e}" for e in told.errors))
    return "\n\n".join(parts)


def _summary(told: Told) -> str:
    counts = {kind: sum(k is kind for k in told.kinds.values()) for kind in Kind}
    words = ", ".join(f"{n} {kind}" for kind, n in counts.items() if n)
    return f"{len(told.kinds)} mutants of {len(told.correct)} kernels: {words}."


def _tools(told: Told) -> str:
    lines = [
        "| tool | killed | of | % | and correct kernel called right | correct kernels "
        "called wrong | conforming mutants called wrong | inputs, median | "
        "seconds, median |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for tool in told.tools:
        rows = told.searched(tool)
        alarms = {r.unit for r in told.false_alarms(tool)}
        found = [r for r in rows if r.found]
        apart = [r for r in found if told.kernels[r.unit] not in alarms]
        correct = sum(r.tool == tool and r.unit in told.correct for r in told.rows)
        conforming = [
            r
            for r in told.rows
            if r.tool == tool and told.kinds.get(r.unit) in CONFORMING
        ]
        cells = (
            tool, str(len(found)), str(len(rows)), _share(len(found), len(rows)),
            str(len(apart)), f"{len(alarms)} of {correct}",
            f"{sum(r.found for r in conforming)} of {len(conforming)}",
            _median(found, lambda r: r.cases), _median(found, lambda r: r.seconds),
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _families(told: Told) -> str:
    lines = [
        f"| family | mutants | {' | '.join(told.tools)} |",
        f"|---|---|{'---|' * len(told.tools)}",
    ]
    for family in FAMILIES:
        numbers = [told.searched(tool, family) for tool in told.tools]
        most = max((len(rows) for rows in numbers), default=0)
        if most:
            shares = (_share(sum(r.found for r in rows), len(rows)) for rows in numbers)
            lines.append(f"| {family} | {most} | {' | '.join(shares)} |")
    return "\n".join(lines)


def _left(told: Told, *, diffs: bool) -> str:
    lines = []
    for each in sorted(told.left, key=lambda x: (list(Kind).index(x.kind), x.id)):
        of = f"{each.cases} cases compared"
        if each.kind is Kind.ADMISSIBLE:
            of += f", error / admitted up to {each.ratio:.3g} ({each.first})"
        of += f"; {each.longer}" if each.longer else ""
        if each.charged:
            of += f"; {each.charged} ({each.first})"
        by = f"; called wrong by {', '.join(each.by)}" if each.by else ""
        reason = f"\n  {each.why}" if each.why else ""
        lines.append(f"* {each.kind}: {each.id}: {of}{by}{reason}")
        if diffs:
            lines.append(_fenced(each.diff))
    return "\n".join(lines)


def _fenced(diff: str) -> str:
    """Return a diff as a block of the list's item."""
    return "\n".join(f"  {line}" for line in ("```diff", *diff.splitlines(), "```"))


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "–"


def _median(rows: Sequence[Row], of: Callable[[Row], float]) -> str:
    if not rows:
        return "–"
    value = statistics.median(of(r) for r in rows)
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def plain(told: Told) -> dict[str, Any]:
    """Return it as JSON has it."""
    return asdict(told)


def killed(told: Told, tool: str) -> Iterator[Row]:
    """Yield the kills of a tool, but for those whose correct kernel it calls wrong."""
    alarms = {r.unit for r in told.false_alarms(tool)}
    for row in told.searched(tool):
        if row.found and told.kernels[row.unit] not in alarms:
            yield row
