"""Inputs and seconds until a planted fault is seen, by kfuzz and by its peers.

    python -m tests.benchmarks.to_first_falsification --json results.json

Each search has the same kernels, references and budget, on the CPU and in Triton's
interpreter, or with `--device cuda` on a GPU. The correct kernel of each operator is
searched too, for what is said of that is a false alarm. What the peers need is in
`requirements.txt`; one that is not installed is left out, and the table says so.
"""

import argparse
import fnmatch
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import starmap
from pathlib import Path
from typing import Final

from tests.benchmarks.peers import PEERS
from tests.benchmarks.peers.asking import Kfuzz, Peers, SearchError, Unavailable
from tests.benchmarks.peers.faults import FAULTS, Fault, entries, faults
from tests.benchmarks.peers.subject import Budget
from tests.benchmarks.peers.versions import machine

KFUZZ: Final = "kfuzz"


@dataclass(frozen=True)
class Search:
    """One search of one kernel.

    Attributes:
        tool: kfuzz or a peer.
        kernel: name of the witness.
        correct: whether the kernel is a correct one.
        seed: of the search.
        found: whether it was called wrong.
        cases: inputs tried.
        seconds: until then, or until the search ended.
        message: what was seen.
    """

    tool: str
    kernel: str
    correct: bool
    seed: int
    found: bool
    cases: int
    seconds: float
    message: str


@dataclass(frozen=True)
class Row:
    """What a tool came to.

    Attributes:
        tool: its name.
        searches: searches of faulty kernels.
        seen: those that called the kernel wrong.
        found: kernels that most seeds called wrong.
        told: those of them whose correct kernel no seed called wrong.
        alarmed: correct kernels that some seed called wrong.
        correct: correct kernels.
        cases: median over the found kernels of the median over the seeds.
        seconds: likewise.
    """

    tool: str
    searches: int
    seen: int
    found: tuple[str, ...]
    told: tuple[str, ...]
    alarmed: tuple[str, ...]
    correct: int
    cases: float
    seconds: float


def median(searches: Sequence[Search], of: Callable[[Search], float]) -> float:
    """Return the median over seeds, infinite where most did not find anything."""
    return statistics.median_low(of(s) if s.found else math.inf for s in searches)


def rows(searches: Sequence[Search], faults: Sequence[Fault]) -> Iterator[Row]:
    """Yield what each tool came to, in the order in which they searched."""
    for tool in dict.fromkeys(s.tool for s in searches):
        own = [s for s in searches if s.tool == tool]
        by_kernel: dict[str, list[Search]] = {}
        for s in own:
            by_kernel.setdefault(s.kernel, []).append(s)
        correct = {s.kernel for s in own if s.correct}
        alarmed = {s.kernel for s in own if s.correct and s.found}
        faulty = [f for f in faults if f.kernel in by_kernel]
        found = [
            f for f in faulty if math.isfinite(median(by_kernel[f.kernel], _cases))
        ]
        of = [by_kernel[f.kernel] for f in found]
        yield Row(
            tool=tool,
            searches=sum(not s.correct for s in own),
            seen=sum(not s.correct and s.found for s in own),
            found=tuple(f.kernel for f in found),
            told=tuple(f.kernel for f in found if f.twin not in alarmed),
            alarmed=tuple(sorted(alarmed)),
            correct=len(correct),
            cases=statistics.median(median(s, _cases) for s in of) if of else math.inf,
            seconds=statistics.median(median(s, _time) for s in of) if of else math.inf,
        )


def _cases(search: Search) -> float:
    return search.cases


def _time(search: Search) -> float:
    return search.seconds


def table(
    searches: Sequence[Search], faults: Sequence[Fault], unavailable: dict[str, str]
) -> str:
    """Return the table of tools."""
    lines = [
        "| tool | faults told from correct kernels | faults called wrong | "
        "searches that did | correct kernels called wrong | inputs, median | "
        "seconds, median |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in rows(searches, faults):
        cells = (
            r.tool, f"{len(r.told)}", f"{len(r.found)}", f"{r.seen} of {r.searches}",
            f"{len(r.alarmed)} of {r.correct}", _number(r.cases), _number(r.seconds),
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    lines += [f"| {t} | not run: {why} | | | | | |" for t, why in unavailable.items()]
    return "\n".join(lines)


def details(searches: Sequence[Search], faults: Sequence[Fault]) -> str:
    """Return the table of faults: medians of inputs and seconds of each tool."""
    tools = list(dict.fromkeys(s.tool for s in searches))
    alarmed = {(s.tool, s.kernel) for s in searches if s.correct and s.found}
    lines = [
        f"| fault | kernel | {' | '.join(tools)} |",
        f"|---|---|{'---|' * len(tools)}",
    ]
    for fault in faults:
        cells = []
        for tool in tools:
            own = [s for s in searches if (s.tool, s.kernel) == (tool, fault.kernel)]
            cell = "not run"
            if own:
                cases, seconds = median(own, _cases), median(own, _time)
                cell = "–"
                if math.isfinite(cases):
                    cell = f"{cases:g}; {_number(seconds)} s"
                    if (tool, fault.twin) in alarmed:
                        cell = f"({cell})"
            cells.append(cell)
        lines.append(f"| {fault.mode} | {fault.kernel} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:.0f}" if value < 1e9 else "–"


def searched(
    tools: Sequence[str],
    faults: Sequence[Fault],
    *,
    budget: Budget,
    seeds: Sequence[int],
    unavailable: dict[str, str],
    problems: list[str],
    tell: Callable[[Search], None],
    device: str = "cpu",
    jobs: int = 1,
) -> list[Search]:
    """Run every tool on every faulty and every correct kernel.

    Args:
        tools: kfuzz and peers, by name.
        faults: the kernels.
        budget: of one search.
        seeds: one search for each.
        unavailable: takes the peers that cannot be imported, with the reason.
        problems: takes what kept searches from a result.
        tell: called after each search.
        device: "cpu" or "cuda".
        jobs: searches by peers at once; kfuzz's own never overlap.
    """
    where = entries(device)
    twins = list(dict.fromkeys(f.twin for f in faults))
    kernels = [*dict.fromkeys(f.kernel for f in faults), *twins]
    with Peers() as peers, Kfuzz() as kfuzz, ThreadPoolExecutor(jobs) as pool:

        def one(tool: str, kernel: str, seed: int) -> Search | None:
            if tool in unavailable:
                return None
            try:
                if tool == KFUZZ:
                    found = kfuzz.search(where[kernel], budget, seed)
                else:
                    found = peers.search(tool, where[kernel], budget, seed)
            except Unavailable as why:
                unavailable[tool] = str(why)
                return None
            except SearchError as error:
                problems.append(str(error))
                return None
            made = Search(tool, kernel, kernel in twins, seed, **vars(found))
            tell(made)
            return made

        made: list[Search | None] = []
        for tool in tools:
            grid = [(tool, kernel, seed) for kernel in kernels for seed in seeds]
            if tool == KFUZZ:
                made += starmap(one, grid)
            else:
                made += pool.map(lambda each: one(*each), grid)
    return [s for s in made if s is not None]


def main() -> int:
    """Search, print the tables, and write the file."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parse.add_argument("--seconds", type=float, default=5.0, help="most of a search")
    parse.add_argument("--cases", type=int, help="most inputs of a search; no limit")
    parse.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parse.add_argument("--seeds", type=int, default=3, help="searches of a kernel")
    parse.add_argument("--jobs", type=int, default=1, help="searches of peers at once")
    parse.add_argument("--tools", default="*", help="glob of names")
    parse.add_argument("--faults", default="*", help="glob of kernels")
    parse.add_argument("--json", type=Path, help="file for every search")
    parse.add_argument("--from-json", type=Path, help="print the tables of such a file")
    options = parse.parse_args()
    problems: list[str] = []
    if options.from_json:
        stored = json.loads(options.from_json.read_text())
        searches = [Search(**s) for s in stored["searches"]]
        known = {s.kernel for s in searches}
        chosen = [f for f in FAULTS if f.kernel in known]
        unavailable = stored["unavailable"]
    else:
        tools = [t for t in (KFUZZ, *PEERS) if fnmatch.fnmatch(t, options.tools)]
        shown = faults(options.device)
        chosen = [f for f in shown if fnmatch.fnmatch(f.kernel, options.faults)]
        unavailable = {}
        budget = Budget(options.seconds, options.cases)
        searches = searched(
            tools, chosen, budget=budget, seeds=range(options.seeds),
            unavailable=unavailable, problems=problems, tell=_tell,
            device=options.device, jobs=options.jobs,
        )  # fmt: skip
        if options.json:
            stored = {
                "machine": machine(),
                "device": options.device,
                "budget": asdict(budget),
                "searches": [asdict(s) for s in searches],
                "unavailable": unavailable,
            }
            options.json.write_text(json.dumps(stored, indent=1) + "\n")
    print(table(searches, chosen, unavailable))
    print()
    print(details(searches, chosen))
    for problem in problems:
        print(f"PROBLEM: {problem}")
    return 1 if problems else 0


def _tell(search: Search) -> None:
    verdict = "wrong" if search.found else "-"
    print(
        f"{search.tool}: {search.kernel}, seed {search.seed}: {verdict} after "
        f"{search.cases} inputs, {search.seconds:.2f} s {search.message}",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    raise SystemExit(main())
