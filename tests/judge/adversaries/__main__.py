"""Print what becomes of every liar, and of the honest ones beside them.

    python -m tests.judge.adversaries [--variants 3] [--seed 1] [--family clocks]

It exits with 1 if a liar does not violate or an honest one does.
"""

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Sequence

from kfuzz.judge.sandbox import zygote_for
from tests.judge.adversaries.suite import SECONDS, Outcome, Suite, candidates


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the candidates; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.judge.adversaries")
    parser.add_argument("--variants", type=int, default=3, help="of each template")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn")
    parser.add_argument("--family", default="", help="this one alone")
    parser.add_argument("--name", default="", help="those whose name holds this")
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0")
    parser.add_argument("--only", choices=("wrong", "honest"), default="")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each")
    parser.add_argument("--cases", type=int, default=None, help="most cases of each")
    parser.add_argument(
        "--honest-cases", type=int, default=None, help="most cases of honest ones"
    )
    parser.add_argument("--all", action="store_true", help="print each")
    parser.add_argument("--part", default="0/1", help="i/n: each n-th from the i-th on")
    options = parser.parse_args(arguments)
    chosen = [
        c
        for c in candidates(options.seed, options.variants, options.device)
        if options.family in ("", c.family)
        and options.name in c.name
        and options.only in ("", "wrong" if c.wrong else "honest")
    ]
    first, step = map(int, options.part.split("/"))
    outcomes = []
    with zygote_for(options.device, output=lambda piece: None) as zygote:
        for candidate in chosen[first::step]:
            cases = options.cases if candidate.wrong else options.honest_cases
            suite = Suite(zygote, options.seconds, cases, options.seed, options.device)
            made = suite.judge(candidate)
            outcomes.append(made)
            if options.all or not made.expected:
                _print(f"{_told(made)}")
    _table(outcomes)
    return 0 if all(o.expected for o in outcomes) else 1


def _told(made: Outcome) -> str:
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
        honest = [o for o in group if not o.candidate.wrong]
        found = sum(o.verdict == "violates" for o in wrong)
        slowest = max((o.seconds for o in wrong), default=0.0)
        false = sum(o.verdict == "violates" for o in honest)
        undecided = sum(o.verdict not in ("violates", "conforms") for o in honest)
        _print(
            f"| {family} | {len(wrong)} | {found} | {slowest:.0f} s | {len(honest)} "
            f"| {false} | {undecided} |"
        )


def _print(line: str) -> None:
    sys.stdout.write(
        f"{time.strftime('%T')} {line}\n" if "|" not in line else f"{line}\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
