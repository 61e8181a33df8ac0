"""A thousand mutants: how many of them kfuzz and its peers tell from correct kernels.

    python -m tests.benchmarks.mutants.run --device cuda --every 3 --state mutants.json

Rules change the correct Triton kernels in one place each. Every mutant that starts is
searched by every tool, and what kfuzz leaves is compared with the correct kernel on
small cases. Call it again with the same state until it says that nothing is left: each
call goes on where the last one ended. It prints the tables, and fails on what is said
of a correct kernel by kfuzz, and on errors.
"""

import argparse
import fnmatch
import os
import sys
from pathlib import Path

from tests.benchmarks.mutants.asking import KFUZZ, USUAL
from tests.benchmarks.mutants.campaign import Settings, State, run
from tests.benchmarks.mutants.mutator import RULES, Mutant, mutants
from tests.benchmarks.mutants.report import Report
from tests.benchmarks.peers import PEERS
from tests.benchmarks.peers.subject import Budget


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


def main() -> int:
    """Search until nothing is left or the time is over; print the tables."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parse.add_argument("--device", choices=("interpret", "cuda"), default="interpret")
    parse.add_argument("--state", type=Path, default=Path("mutants.json"))
    parse.add_argument("--seconds", type=float, default=280.0, help="of this call")
    parse.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parse.add_argument("--tools", nargs="*", default=list(USUAL), help="globs of names")
    parse.add_argument("--rules", nargs="*", default=["*"], help="globs of rules, "
                       "families or ids of mutants")  # fmt: skip
    parse.add_argument("--kernels", nargs="*", default=["*"], help="globs of names")
    parse.add_argument("--every", type=int, default=1, help="take one in so many")
    parse.add_argument("--offset", type=int, default=0, help="of the first one taken")
    parse.add_argument("--search-seconds", type=float, default=8.0)
    parse.add_argument("--search-cases", type=int, help="most inputs of a search")
    parse.add_argument("--compared", type=int, default=3000, help="most small cases")
    parse.add_argument("--compare-seconds", type=float, default=40.0)
    parse.add_argument(
        "--longer-seconds", type=float, default=0.0,
        help="of a second search by kfuzz of what it leaves",
    )  # fmt: skip
    parse.add_argument("--seed", type=int, default=0)
    parse.add_argument("--list", action="store_true", help="print rules and numbers")
    parse.add_argument("--diffs", action="store_true", help="print every mutant")
    parse.add_argument("--report", action="store_true", help="print the tables alone")
    parse.add_argument("--short", action="store_true", help="print no edits in them")
    options = parse.parse_args()
    every = chosen(options)
    if not every:
        print("no mutant of that name", file=sys.stderr)
        return 2
    if options.list or options.diffs:
        print(listed(every, diffs=options.diffs))
        return 0
    names = (KFUZZ, *PEERS)
    tools = [n for n in names if any(fnmatch.fnmatchcase(n, g) for g in options.tools)]
    settings = Settings(
        options.device, tuple(tools),
        Budget(options.search_seconds, options.search_cases),
        options.compared, options.compare_seconds, options.seed,
        options.longer_seconds,
    )  # fmt: skip
    if options.report:
        settings = Settings.of(options.state)
    try:
        state = State(options.state, settings)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    complete = True
    if not options.report:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        complete = run(
            every, settings, state, seconds=options.seconds, jobs=options.jobs
        )
    made = Report(every, state, settings.tools)
    print(made.tables(diffs=not options.short))
    if not complete:
        print("not complete: call it again with the same state")
    return 1 if made.errors or made.false_alarms(KFUZZ) else 0


if __name__ == "__main__":
    raise SystemExit(main())
