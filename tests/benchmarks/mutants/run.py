"""Hundreds of mutants: how many of them kfuzz and its peers see to be wrong.

    python -m tests.benchmarks.mutants.run --device cuda --every 3

Rules change the correct Triton kernels in one place each. Every mutant that starts is
searched by every tool, and so are the correct kernels. It prints the tables, and fails
on what is said of a correct kernel by kfuzz, and on errors. What kfuzz leaves is listed
with its edit: some of it conforms.
"""

import argparse
import fnmatch
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from kfuzz.contracts.witnesses.roster import Entry
from kfuzz.core.verdict import Role
from tests.benchmarks.mutants.mutator import FAMILIES, RULES, Mutant, mutants, written
from tests.benchmarks.mutants.specimens import SPECIMENS
from tests.benchmarks.mutants.starting import STARTS
from tests.benchmarks.peers import PEERS
from tests.benchmarks.peers.asking import Kfuzz, Peers, SearchError, Unavailable
from tests.benchmarks.peers.subject import Budget, Found

KFUZZ: Final = "kfuzz"
USUAL: Final = (KFUZZ, "five random inputs", "Hypothesis, within 100")
HEADS: Final = (
    "tool", "killed", "of", "%", "correct kernels called wrong", "inputs, median",
    "seconds, median",
)  # fmt: skip


def chosen(options: argparse.Namespace) -> list[Mutant]:
    """Return the mutants that the options name."""
    every = [
        m
        for m in mutants()
        if options.device in m.backends
        and any(fnmatch.fnmatchcase(m.specimen.name, g) for g in options.kernels)
        and any(
            fnmatch.fnmatchcase(name, g)
            for name in (m.rule.name, m.rule.family, m.id)
            for g in options.rules
        )
    ]
    return every[options.offset :: options.every]


def listed(every: list[Mutant], *, diffs: bool) -> str:
    """Return the rules with their numbers of mutants, or every mutant with its diff."""
    if diffs:
        return "\n".join(f"{m.id}, line {m.line}\n{m.diff}" for m in every)
    lines = ["| family | rule | what it does | mutants |", "|---|---|---|---|"]
    for rule in RULES:
        number = sum(m.rule is rule for m in every)
        lines.append(f"| {rule.family} | {rule.name} | {rule.says} | {number} |")
    kernels = len({m.specimen.name for m in every})
    return "\n".join([*lines, f"| **all** | {len(RULES)} | of {kernels} kernels | "
                      f"{len(every)} |"])  # fmt: skip


class Searches:
    """What every tool said of every kernel.

    Attributes:
        found: by tool and mutant, or name of a correct kernel.
        problems: what kept searches from a result.
    """

    def __init__(self, every: list[Mutant], options: argparse.Namespace) -> None:
        self._mutants = every
        self._correct = [
            s for s in SPECIMENS if s.name in {m.specimen.name for m in every}
        ]
        self._options = options
        self._deadline = time.monotonic() + options.seconds
        self.found: dict[tuple[str, str], Found] = {}
        self.problems: list[str] = []

    def run(self) -> None:
        """Search until all is done or the time is over."""
        peers_tools = [STARTS, *(t for t in self._options.tools if t != KFUZZ)]
        with (
            tempfile.TemporaryDirectory(prefix="mutants-") as name, Peers() as peers,
            Kfuzz() as kfuzz, ThreadPoolExecutor(self._options.jobs) as pool,
        ):  # fmt: skip
            written(Path(name), self._mutants)
            units = [(s.name, s.name, f"{s.name}.py") for s in self._correct]
            units += [(m.id, m.specimen.name, m.file) for m in self._mutants]

            def one(tool: str, unit: str, kernel: str, file: str) -> None:
                start = self.found.get((STARTS, unit), Found(False, 0, 0.0))
                left = self._deadline - time.monotonic()
                if left < self._options.search_seconds or start.message:
                    return
                witness = next(s.witness for s in self._correct if s.name == kernel)
                entry = Entry(witness, Role.VIOLATING, self._options.device)
                budget = Budget(
                    self._options.search_seconds, self._options.search_cases
                )
                path, seed = Path(name, file), self._options.seed
                try:
                    if tool == KFUZZ:
                        made = kfuzz.search(entry, budget, seed, file=path)
                    else:
                        made = peers.search(tool, entry, budget, seed, file=path)
                except (Unavailable, SearchError) as why:
                    self.problems.append(f"{tool}: {unit}: {why}")
                    return
                self.found[tool, unit] = made
                print(f"{tool}: {unit}: {made}", file=sys.stderr, flush=True)

            for tool in peers_tools:
                list(pool.map(lambda unit, tool=tool: one(tool, *unit), units))
            for unit in units if KFUZZ in self._options.tools else ():
                one(KFUZZ, *unit)

    def of(self, tool: str, mutants: Iterable[Mutant]) -> list[Found]:
        """Return what a tool said of mutants that start."""
        return [f for m in mutants if (f := self.found.get((tool, m.id)))]

    def alarms(self, tool: str) -> list[str]:
        """Return the correct kernels that a tool calls wrong."""
        correct = (s.name for s in self._correct)
        return [k for k in correct if (f := self.found.get((tool, k))) and f.found]

    def tables(self) -> Iterator[str]:
        """Yield what each tool killed, by family too, and what kfuzz left."""
        tools = self._options.tools
        yield f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}"
        for tool in tools:
            made = self.of(tool, self._mutants)
            killed = [f for f in made if f.found]
            medians = [
                f"{statistics.median(each):.2g}" if killed else "–"
                for each in ([f.cases for f in killed], [f.seconds for f in killed])
            ]
            alarms = f"{len(self.alarms(tool))} of {len(self._correct)}"
            cells = (tool, str(len(killed)), str(len(made)), _share(made), alarms)
            yield f"| {' | '.join((*cells, *medians))} |"
        yield f"\n| family | mutants | {' | '.join(tools)} |\n|---|---|" + "---|" * len(
            tools
        )
        for family in FAMILIES:
            mutants = [m for m in self._mutants if m.rule.family == family]
            made = [self.of(tool, mutants) for tool in tools]
            if most := max(map(len, made)):
                yield f"| {family} | {most} | {' | '.join(map(_share, made))} |"
        for m in self._mutants:
            kept = self.found.get((KFUZZ, m.id))
            if kept is not None and not kept.found:
                yield f"\n* {m.id}, left after {kept.cases} cases:\n\n{m.diff}"
        yield from (f"PROBLEM: {problem}" for problem in self.problems)


def _share(found: list[Found]) -> str:
    share = 100 * sum(f.found for f in found) / len(found) if found else 0.0
    return f"{share:.1f}" if found else "–"


def main() -> int:
    """Search and print the tables."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parse.add_argument("--device", choices=("interpret", "cuda"), default="interpret")
    parse.add_argument("--seconds", type=float, default=280.0, help="of this call")
    parse.add_argument("--jobs", type=int, default=1, help="searches of peers at once")
    parse.add_argument("--tools", nargs="*", default=USUAL, choices=(KFUZZ, *PEERS))
    parse.add_argument("--rules", nargs="*", default=["*"], help="globs of rules, "
                       "families or ids of mutants")  # fmt: skip
    parse.add_argument("--kernels", nargs="*", default=["*"], help="globs of names")
    parse.add_argument("--every", type=int, default=1, help="take one in so many")
    parse.add_argument("--offset", type=int, default=0, help="of the first one taken")
    parse.add_argument("--search-seconds", type=float, default=8.0)
    parse.add_argument("--search-cases", type=int, help="most inputs of a search")
    parse.add_argument("--seed", type=int, default=0)
    parse.add_argument("--list", action="store_true", help="print rules and numbers")
    parse.add_argument("--diffs", action="store_true", help="print every mutant")
    options = parse.parse_args()
    every = chosen(options)
    if not every:
        print("no mutant of that name", file=sys.stderr)
        return 2
    if options.list or options.diffs:
        print(listed(every, diffs=options.diffs))
        return 0
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    made = Searches(every, options)
    made.run()
    print("\n".join(made.tables()))
    return 1 if made.problems or made.alarms(KFUZZ) else 0


if __name__ == "__main__":
    raise SystemExit(main())
