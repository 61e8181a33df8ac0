"""Correct kernels of operators, thousands of cases each: what is decided and found.

    python -m tests.benchmarks.correct_operators                 # every operator
    python -m tests.benchmarks.correct_operators kl_div 'conv*' --cases 200

Judges cases of every conforming witness of the operators on the CPU, torch's kernel
and those by other algorithms, and prints a table: operator, kernel, cases, structures,
cases in which a value was decided, rejected ones, failing ones, findings, seconds.
Kernels in Triton's interpreter get small cases. Exits with 1 on a finding, an error,
where fewer cases ran than were asked for, or where a third of them or less was decided.
"""

import argparse
import fnmatch
import os
import sys
import time
from collections.abc import Sequence
from typing import Final

from kfuzz.contracts.binding import REGISTRY, BoundKernel
from kfuzz.contracts.witnesses.roster import everywhere
from kfuzz.core.budget import SizeBudget
from tests.helpers import other_algorithms
from tests.helpers.batched import Tally, tallied

OTHERS: Final = REGISTRY[other_algorithms.__name__]

CASES: Final = 2_000
ITEMS: Final = 10
SECONDS: Final = 600.0
COLUMNS: Final = ("cases", "structures", "decided", "rejected", "failing")
# Room for one tile of scales of 128 x 128.
COMPILED: Final = SizeBudget(1 << 14, 1 << 12)
# A program of the interpreter takes milliseconds.
INTERPRETED: Final = SizeBudget(1 << 11, 8)


def correct(globs: Sequence[str]) -> list[tuple[BoundKernel, bool]]:
    """Return correct kernels of operators, and whether each is interpreted."""
    found = [
        (witness.load(), "interpret" in witness.backends)
        for witness in everywhere().values()
        if witness.conforming
    ]
    found += [(kernel, False) for kernel in OTHERS]
    return [
        each
        for each in sorted(found, key=lambda f: (f[0].operator.name, f[0].name))
        if any(fnmatch.fnmatchcase(each[0].operator.name, glob) for glob in globs)
    ]


def proven(
    kernel: BoundKernel, interpreted: bool, cases: int, seconds: float = SECONDS
) -> tuple[Tally, bool]:
    """Return what cases of one kernel gave, and whether they speak for it."""
    made = tallied(
        kernel,
        cases,
        budget=INTERPRETED if interpreted else COMPILED,
        items=1 if interpreted else ITEMS,
        seconds=seconds,
    )
    counts = made.counts
    enough = counts["cases"] >= cases and counts["decided"] > cases / 3
    return made, enough and not made.findings and not made.errors


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit code."""
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operators", nargs="*", default=["*"])
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for a kernel")
    parser.add_argument("--kernels", nargs="*", default=["*"], metavar="GLOB")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    wanted = [
        each
        for each in correct(options.operators)
        if any(fnmatch.fnmatchcase(each[0].name, g) for g in options.kernels)
    ]
    heads = ("operator", "kernel", *COLUMNS, "findings", "s")
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    open_ones = []
    for kernel, interpreted in wanted:
        began = time.monotonic()
        made, is_proven = proven(kernel, interpreted, options.cases, options.seconds)
        spent = round(time.monotonic() - began, 1)
        counts = [made.counts[column] for column in COLUMNS]
        found = "; ".join([*made.findings, *made.errors.values()]) or "none"
        row = (kernel.operator.name, kernel.name, *counts, found, spent)
        print(f"| {' | '.join(str(value) for value in row)} |", flush=True)
        for key, text in made.findings.items():
            print(f"    {key}: {text}", file=sys.stderr)
        if not is_proven:
            open_ones.append(kernel.name)
    print(f"{len(wanted)} kernels" + "".join(f"; not proven: {n}" for n in open_ones))
    return int(bool(open_ones) or not wanted)


if __name__ == "__main__":
    sys.exit(main())
