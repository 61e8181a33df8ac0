"""Time to a verdict of `kfuzz.Judge`, and judgements a minute.

    python -m tests.benchmarks.judge_service [--device cuda:0] [--jobs 16] [--each 40]

The candidates are those of tests/features/judge/adversaries: liars, honest ones beside
them, and the contracts' witnesses. Exits with 1 if a liar does not violate or an honest
one does.
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import kfuzz
from kfuzz.features.judge.service.judge import Ruling, Score
from tests.features.judge.adversaries.suite import Candidate, candidates


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge candidates at once; print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.judge_service")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--max-time", type=float, default=10.0)
    parser.add_argument("--each", type=int, default=40, help="liars, and honest ones")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family", default="")
    options = parser.parse_args(arguments)
    chosen = _chosen(options)
    with kfuzz.Judge(
        device=options.device, jobs=options.jobs, max_time=options.max_time,
        build_time=60,
    ) as judge, ThreadPoolExecutor(options.jobs) as threads:  # fmt: skip

        def judged(candidate: Candidate) -> Score:
            claims = {"determinism": "none"} if candidate.random else {}
            task = judge.task(candidate.reference, **claims)
            return judge.judge(candidate.source, task=task)

        list(threads.map(judged, chosen[: options.jobs]))  # processes begin, unmeasured
        began = time.monotonic()
        scores = list(threads.map(judged, chosen))
        seconds = time.monotonic() - began
    wrong = 0
    for lies in (True, False):
        group = [(c, s) for c, s in zip(chosen, scores, strict=True) if c.wrong is lies]
        took = sorted(s.seconds for _, s in group)
        name = "liars" if lies else "honest"
        counts = {r: sum(s.verdict is r for _, s in group) for r in Ruling}
        told = ", ".join(f"{n} {ruling}" for ruling, n in counts.items() if n)
        print(
            f"{name}: {len(took)}, median {statistics.median(took):.2f} s, "
            f"90 % within {took[int(0.9 * (len(took) - 1))]:.2f} s: {told}"
        )
        for candidate, score in group:
            caught = score.verdict in (Ruling.VIOLATES, Ruling.CONFORMS_ON_FINITE)
            if caught is not lies and not (lies and score.reward == 0.0):
                wrong += 1
                print(f"  UNEXPECTED {candidate.name}: {score.verdict}: {score.reason}")
    print(
        f"{60 * len(scores) / seconds:.0f} judgements a minute, {options.jobs} at once "
        f"on {options.device}"
    )
    return 1 if wrong else 0


def _chosen(options: argparse.Namespace) -> list[Candidate]:
    """Return as many liars as honest ones, in an order that is drawn."""
    draw = random.Random(options.seed)
    made = [
        c
        for c in candidates(options.seed, 1, options.device)
        if options.family in ("", c.family)
        and not ("import triton" in c.source and options.device == "cpu")
    ]
    draw.shuffle(made)
    liars = [c for c in made if c.wrong][: options.each]
    honest = [c for c in made if not c.wrong][: options.each]
    chosen = liars + honest
    draw.shuffle(chosen)
    return chosen


if __name__ == "__main__":
    sys.exit(main())
