"""Print what becomes of every liar, and of the honest ones beside them.

    python -m tests.features.judge.adversaries [--variants 3] [--seed 1]
        [--family clocks] [--jobs 16] [--within 450]

It exits with 1 if a liar does not violate, an honest one does, or one was not judged
for want of time.
"""

import argparse
import os
import sys
import time
from collections import defaultdict
from collections.abc import Sequence

from kfuzz.core.verdict import Verdict
from tests.features.judge.adversaries.suite import Outcome, candidates, judged


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the candidates; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.features.judge.adversaries")
    parser.add_argument("--variants", type=int, default=3, help="of each template")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn")
    parser.add_argument("--family", default="", help="this one alone")
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0")
    parser.add_argument("--honest-cases", type=int, help="most cases of honest ones")
    parser.add_argument("--jobs", type=int, default=1, help="judged at once")
    parser.add_argument(
        "--within", type=float, default=float("inf"), help="seconds of all of it"
    )
    options = parser.parse_args(arguments)
    made = candidates(options.seed, options.variants, options.device)
    chosen = [c for c in made if options.family in ("", c.family)]
    outcomes = []
    for outcome in judged(chosen, options):
        outcomes.append(outcome)
        if not outcome.expected:
            _print(f"{time.strftime('%T')} {_line(outcome)}")
    _table(outcomes)
    left = len(chosen) - len(outcomes)
    if left:
        _print(f"{left} were not judged within {options.within:.0f} s")
    return 0 if all(o.expected for o in outcomes) and not left else 1


def _line(made: Outcome) -> str:
    what = "liar" if made.candidate.wrong else "honest"
    where = f"{made.candidate.family}: {made.candidate.name}"
    return f"{what} {made.verdict} {made.seconds:.0f} s  {where}: {made.reason}"


def _table(outcomes: Sequence[Outcome]) -> None:
    families: dict[str, list[Outcome]] = defaultdict(list)
    for made in outcomes:
        families[made.candidate.family].append(made)
    _print("| family | liars | violate | slowest | honest | violate | undecided |")
    _print("|---|---|---|---|---|---|---|")
    for family, group in [*families.items(), ("all", list(outcomes))]:
        wrong = [o for o in group if o.candidate.wrong]
        honest = [o.verdict for o in group if not o.candidate.wrong]
        found = sum(o.verdict == "violates" for o in wrong)
        slowest = max((o.seconds for o in wrong), default=0.0)
        false, right = honest.count(Verdict.VIOLATES), honest.count(Verdict.CONFORMS)
        _print(
            f"| {family} | {len(wrong)} | {found} | {slowest:.0f} s | {len(honest)} "
            f"| {false} | {len(honest) - false - right} |"
        )


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
