"""Inputs and seconds until a planted fault is seen, by kfuzz and by its peers.

    python -m tests.benchmarks.to_first_falsification

Each search has the same kernels, references and budget, on the CPU and in Triton's
interpreter, or with `--device cuda` on a GPU. The correct kernel of each operator is
searched too, for what is reported of that is a false alarm. What the peers need is in
`requirements.txt`; one that is not installed is left out, and the table says so.
"""

import argparse
import fnmatch
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import starmap
from typing import Final

from tests.benchmarks.peers import PEERS
from tests.benchmarks.peers.asking import Kfuzz, Peers, SearchError, Unavailable
from tests.benchmarks.peers.faults import Fault, entries, faults
from tests.benchmarks.peers.subject import Budget, Found
from tests.benchmarks.peers.versions import machine

KFUZZ: Final = "kfuzz"
HEADS: Final = (
    "tool", "faults told from correct kernels", "faults called wrong",
    "searches that did", "correct kernels called wrong", "inputs, median",
    "seconds, median",
)  # fmt: skip


class Results:
    """Every search: by tool and kernel, what each seed gave.

    Attributes:
        faults: the kernels with a fault.
        unavailable: peers that cannot be imported, with the reason.
        problems: what kept searches from a result.
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = faults
        self.unavailable: dict[str, str] = {}
        self.problems: list[str] = []
        self._found: dict[tuple[str, str], list[Found]] = {}

    def add(self, tool: str, kernel: str, found: Found) -> None:
        """Take what one search came to."""
        self._found.setdefault((tool, kernel), []).append(found)

    def _tools(self) -> list[str]:
        return list(dict.fromkeys(tool for tool, _ in self._found))

    def _alarmed(self, tool: str) -> set[str]:
        """Return the correct kernels that some seed called wrong."""
        twins = {f.twin for f in self.faults}
        return {
            k for k in twins if any(f.found for f in self._found.get((tool, k), ()))
        }

    def _median(self, tool: str, kernel: str) -> tuple[float, float]:
        """Return cases and seconds over seeds, infinite where most found nothing."""
        own = self._found.get((tool, kernel), [Found(False, 0, 0.0, "")])
        return (
            statistics.median_low(f.cases if f.found else math.inf for f in own),
            statistics.median_low(f.seconds if f.found else math.inf for f in own),
        )

    def by_tool(self) -> Iterator[str]:
        """Yield the table of tools."""
        yield f"| {' | '.join(HEADS)} |"
        yield f"|{'---|' * len(HEADS)}"
        for tool in self._tools():
            alarmed = self._alarmed(tool)
            medians = {f: self._median(tool, f.kernel) for f in self.faults}
            found = {f: m for f, m in medians.items() if math.isfinite(m[0])}
            searches = [
                s for f in self.faults for s in self._found.get((tool, f.kernel), ())
            ]
            correct = len({f.twin for f in self.faults})
            cells = (
                tool, str(sum(f.twin not in alarmed for f in found)), str(len(found)),
                f"{sum(s.found for s in searches)} of {len(searches)}",
                f"{len(alarmed)} of {correct}",
                *(
                    _number(statistics.median(m[i] for m in found.values()))
                    if found
                    else "–"
                    for i in (0, 1)
                ),
            )  # fmt: skip
            yield f"| {' | '.join(cells)} |"
        for tool, why in self.unavailable.items():
            yield f"| {tool} | not run: {why} | | | | | |"

    def by_fault(self) -> Iterator[str]:
        """Yield the table of faults; in parentheses where the twin is called wrong."""
        tools = self._tools()
        yield f"| fault | kernel | {' | '.join(tools)} |"
        yield f"|---|---|{'---|' * len(tools)}"
        for fault in self.faults:
            cells = []
            for tool in tools:
                cases, seconds = self._median(tool, fault.kernel)
                cell = f"{cases:g}; {_number(seconds)} s"
                cell = f"({cell})" if fault.twin in self._alarmed(tool) else cell
                cells.append(cell if math.isfinite(cases) else "–")
            yield f"| {fault.mode} | {fault.kernel} | {' | '.join(cells)} |"


def _number(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def searched(
    tools: Sequence[str],
    faults: Sequence[Fault],
    *,
    budget: Budget,
    seeds: Sequence[int],
    device: str,
    jobs: int,
) -> Results:
    """Run every tool on every faulty and every correct kernel.

    Args:
        tools: kfuzz and peers, by name.
        faults: the kernels.
        budget: of one search.
        seeds: one search for each.
        device: "cpu" or "cuda".
        jobs: searches by peers at once; kfuzz's own never overlap.
    """
    made, where = Results(faults), entries(device)
    kernels = dict.fromkeys([f.kernel for f in faults] + [f.twin for f in faults])
    with Peers() as peers, Kfuzz() as kfuzz, ThreadPoolExecutor(jobs) as pool:

        def one(tool: str, kernel: str, seed: int) -> None:
            if tool in made.unavailable:
                return
            try:
                if tool == KFUZZ:
                    found = kfuzz.search(where[kernel], budget, seed)
                else:
                    found = peers.search(tool, where[kernel], budget, seed)
            except Unavailable as why:
                made.unavailable[tool] = str(why)
            except SearchError as error:
                made.problems.append(str(error))
            else:
                made.add(tool, kernel, found)
                text = f"{tool}: {kernel}, seed {seed}: {found}"
                print(text, file=sys.stderr, flush=True)

        for tool in tools:
            grid = [(tool, kernel, seed) for kernel in kernels for seed in seeds]
            if tool == KFUZZ:
                list(starmap(one, grid))
            else:
                list(pool.map(lambda each: one(*each), grid))
    return made


def main() -> int:
    """Search and print the tables."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parse.add_argument("--seconds", type=float, default=5.0, help="most of a search")
    parse.add_argument("--cases", type=int, help="most inputs of a search; no limit")
    parse.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parse.add_argument("--seeds", type=int, default=3, help="searches of a kernel")
    parse.add_argument("--jobs", type=int, default=1, help="searches of peers at once")
    parse.add_argument("--tools", default="*", help="glob of names")
    parse.add_argument("--faults", default="*", help="glob of kernels")
    options = parse.parse_args()
    made = searched(
        [t for t in (KFUZZ, *PEERS) if fnmatch.fnmatch(t, options.tools)],
        [
            f
            for f in faults(options.device)
            if fnmatch.fnmatch(f.kernel, options.faults)
        ],
        budget=Budget(options.seconds, options.cases),
        seeds=range(options.seeds),
        device=options.device,
        jobs=options.jobs,
    )
    print("\n".join([*made.by_tool(), "", *made.by_fault(), ""]))
    print("; ".join(f"{name} {text}" for name, text in machine().items()))
    print("\n".join(f"PROBLEM: {problem}" for problem in made.problems))
    return 1 if made.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
