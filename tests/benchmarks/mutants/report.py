"""The tables: what each tool killed, by family, and what is left."""

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from tests.benchmarks.mutants.asking import COMPARISON, KFUZZ, LONGER, NOT_RUN, START
from tests.benchmarks.mutants.campaign import LEAST_COMPARED, State
from tests.benchmarks.mutants.mutator import FAMILIES, Mutant


class Kind(StrEnum):
    """What a mutant is.

    STILLBORN raises on an ordinary input or does not compile. EQUIVALENT gave the bits
    of the correct kernel in every case of the comparison, and broke no contract;
    ADMISSIBLE gave others, all within what the contract allows. LEFT broke one in the
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


class Row(NamedTuple):
    """What one tool made of a mutant or a correct kernel."""

    tool: str
    unit: str
    found: bool
    cases: int
    seconds: float


class Report:
    """What is known of mutants and of their correct kernels.

    Attributes:
        kinds: of every mutant that was tried, by id.
        errors: what kept searches from a result.
    """

    def __init__(
        self, every: Sequence[Mutant], state: State, tools: Sequence[str]
    ) -> None:
        self._mutants = {m.id: m for m in every}
        self._units = state.units
        self._correct = {
            m.specimen.name for m in every if m.specimen.name in state.units
        }
        self._rows: list[Row] = []
        self.errors: list[str] = []
        for unit in (*sorted(self._correct), *self._mutants):
            known = state.units.get(unit, {})
            for tool, made in known.get("searches", {}).items():
                if tool in tools and "error" not in made:
                    values = (made[key] for key in ("found", "cases", "seconds"))
                    self._rows.append(Row(tool, unit, *values))
            steps = {**known.get("searches", {}), LONGER: known.get(LONGER, {})}
            steps[COMPARISON] = known.get(COMPARISON, {})
            self.errors += [
                why if why.startswith(NOT_RUN) else f"{unit}, {what}: {why}"
                for what, made in steps.items()
                if (why := made.get("error"))
            ]
        self.errors = list(dict.fromkeys(self.errors))
        self._tools = [t for t in tools if any(r.tool == t for r in self._rows)]
        self.kinds = {
            id: _kind(known)
            for id, mutant in self._mutants.items()
            if (known := state.units.get(id, {})).get("digest") == mutant.digest
            and START in known
        }

    def false_alarms(self, tool: str) -> set[str]:
        """Return the correct kernels that a tool calls wrong."""
        return {r.unit for r in self._of(tool) if r.found and r.unit in self._correct}

    def tables(self, *, diffs: bool = True) -> str:
        """Return all tables; with the edits of what kfuzz left, if asked for."""
        counts = Counter(self.kinds.values())
        words = ", ".join(f"{counts[kind]} {kind}" for kind in Kind if counts[kind])
        parts = [
            f"{len(self.kinds)} mutants of {len(self._correct)} kernels: {words}.",
            "\n".join(self._by_tool()),
            "\n".join(self._by_family()),
            "\n".join(self._left(diffs=diffs)),
            "\n".join(f"PROBLEM: {error}" for error in self.errors),
        ]
        return "\n\n".join(filter(None, parts))

    def _of(self, tool: str) -> list[Row]:
        return [r for r in self._rows if r.tool == tool]

    def _searched(self, tool: str, family: str = "") -> list[Row]:
        """Return a tool's searches of mutants that can be killed."""
        return [
            r
            for r in self._of(tool)
            if self.kinds.get(r.unit) not in (None, *CONFORMING)
            and family in ("", self._mutants[r.unit].rule.family)
        ]

    def _by_tool(self) -> Iterator[str]:
        yield (
            "| tool | killed | of | % | and correct kernel called right | correct "
            "kernels called wrong | conforming mutants called wrong | inputs, median | "
            "seconds, median |"
        )
        yield f"|{'---|' * 9}"
        for tool in self._tools:
            own, rows, alarms = (
                self._of(tool), self._searched(tool), self.false_alarms(tool),
            )  # fmt: skip
            found = [r for r in rows if r.found]
            apart = [
                r for r in found if self._mutants[r.unit].specimen.name not in alarms
            ]
            correct = sum(r.unit in self._correct for r in own)
            conforming = [r for r in own if self.kinds.get(r.unit) in CONFORMING]
            medians = (
                f"{statistics.median(each):.2g}" if found else "–"
                for each in ([r.cases for r in found], [r.seconds for r in found])
            )
            cells = (
                tool, str(len(found)), str(len(rows)), _share(rows), str(len(apart)),
                f"{len(alarms)} of {correct}",
                f"{sum(r.found for r in conforming)} of {len(conforming)}", *medians,
            )  # fmt: skip
            yield f"| {' | '.join(cells)} |"

    def _by_family(self) -> Iterator[str]:
        yield f"| family | mutants | {' | '.join(self._tools)} |"
        yield f"|---|---|{'---|' * len(self._tools)}"
        for family in FAMILIES:
            rows = [self._searched(tool, family) for tool in self._tools]
            if most := max(map(len, rows), default=0):
                yield f"| {family} | {most} | {' | '.join(map(_share, rows))} |"

    def _left(self, *, diffs: bool) -> Iterator[str]:
        """Yield what is known of the mutants that kfuzz has not killed."""
        for kind in (*CONFORMING, Kind.LEFT, Kind.UNKNOWN):
            for id in sorted(id for id, k in self.kinds.items() if k is kind):
                known = self._units[id]
                if KFUZZ not in known["searches"]:
                    continue
                made, longer = known.get(COMPARISON, {}), known.get(LONGER, {})
                text = f"{made.get('cases', 0)} cases compared"
                if kind is Kind.ADMISSIBLE:
                    text += f", error / allowed up to {made['ratio']:.3g}"
                if longer.get("found"):
                    text += f"; found by a longer search after {longer['cases']} cases"
                if made.get("charged"):
                    text += f"; {made['charged']}"
                yield f"* {kind}: {id}: {text} {made.get('first', '')}".rstrip()
                if diffs:
                    lines = ("```diff", *self._mutants[id].diff.splitlines(), "```")
                    yield from (f"  {line}" for line in lines)


def _kind(known: dict[str, Any]) -> Kind:
    if known[START].get("raised"):
        return Kind.STILLBORN
    if known["searches"].get(KFUZZ, {}).get("found"):
        return Kind.KILLED
    compared = known.get(COMPARISON, {})
    if known.get(LONGER, {}).get("found") or compared.get("charged"):
        return Kind.LEFT
    if compared.get("cases", 0) < LEAST_COMPARED:
        return Kind.UNKNOWN
    return Kind.ADMISSIBLE if compared["differing"] else Kind.EQUIVALENT


def _share(rows: Sequence[Row]) -> str:
    return f"{100 * sum(r.found for r in rows) / len(rows):.1f}" if rows else "–"
