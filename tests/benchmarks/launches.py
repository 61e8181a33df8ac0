"""Launches in Triton's interpreter: all programs at once beside one after the other.

    TRITON_INTERPRET=1 python -m tests.benchmarks.launches --cases 20

Each correct witness is called on cases drawn as for the CPU (up to 65,536 elements,
4,096 rows), twice each way in turn; of each launch the faster counts, in processor
time, with its preparation and checks of memory. Prints a Markdown table by the number
of programs, and why launches were not vectorised.
"""

import argparse
import math
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any, Final

from kfuzz.contracts.binding import Derived
from kfuzz.contracts.suite import select_classes
from kfuzz.contracts.witnesses.roster import roster
from kfuzz.core.recipe import Case, poison_of
from kfuzz.core.verdict import Role
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.execution.interpreter import vectorised
from kfuzz.execution.interpreter.watch import Launches, for_interpret
from tests.helpers.budgets import SIZE_BUDGETS
from tests.helpers.kernel_draws import drawn

CLASSES: Final = {"1": 1, "2": 2, "3-7": 7, "8-15": 15, "16-63": 63, "64 and more": 0}
HEADS: Final = (
    "programs", "launches", "witnesses", "vectorised", "one by one, ms", "at once, ms",
    "median ratio",
)  # fmt: skip
ALONE: Final = 1 << 40


class Clock:
    """Times launches.

    Attributes:
        seen: of each launch its programs, seconds, and why it was not vectorised.
    """

    def __init__(self) -> None:
        from triton.runtime.interpreter import InterpretedFunction

        self.seen: list[tuple[int, float, str]] = []
        launched, run = InterpretedFunction.run, Launches.run
        now: list[tuple[int, str]] = []

        def timed(function: Any, *arguments: Any, **named: Any) -> Any:
            began = time.process_time()
            try:
                return launched(function, *arguments, **named)
            finally:
                spent = time.process_time() - began
                self.seen += [(n, spent, why) for n, why in now]
                now.clear()

        def noted(launches: Launches, *arguments: Any, **named: Any) -> None:
            before = launches.alone.copy()
            try:
                run(launches, *arguments, **named)
            finally:
                why = "".join(launches.alone - before)
                now.append((math.prod(launches.grid), why))

        InterpretedFunction.run, Launches.run = timed, noted

    def launches(
        self, evaluator: Evaluator, case: Case, least: int
    ) -> Sequence[tuple[int, float, str]]:
        """Call a kernel once, programs at once from so many on."""
        vectorised.LEAST_PROGRAMS = least  # type: ignore[misc]
        vectorised._skipped.clear()
        self.seen.clear()
        derived = Derived(case, evaluator.values(case))
        evaluator.caller(case).run(derived, {}, poison_of(case))
        return tuple(self.seen)


def main() -> int:
    """Measure and print."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parse.add_argument("--cases", type=int, default=20)
    parse.add_argument("--only", nargs="*", default=[], help="names of witnesses")
    options = parse.parse_args()
    for_interpret()
    clock, least = Clock(), vectorised.LEAST_PROGRAMS
    rows = defaultdict(list)
    alone: Counter[str] = Counter()
    for entry in roster("cpu"):
        name = entry.witness.kernel
        apart = entry.role is not Role.CONFORMING or entry.backend != "interpret"
        if apart or entry.alone or (options.only and name not in options.only):
            continue
        kernel = entry.load()
        sizes = SIZE_BUDGETS["cpu"]
        evaluator = Evaluator(kernel, setting_of("cpu", sizes, select_classes((), ())))
        for case in map(evaluator.settled, drawn(kernel, options.cases)):
            found = [clock.launches(evaluator, case, n) for n in (ALONE, least) * 2]
            for each in zip(*found, strict=False):
                size = next(
                    c for c, most in CLASSES.items() if each[0][0] <= most or not most
                )
                before, after = (min(each[i][1], each[i + 2][1]) for i in (0, 1))
                rows[size].append((name, before, after, each[1][2]))
                if each[0][0] >= least:
                    alone[each[1][2]] += 1
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    for size in filter(rows.__contains__, CLASSES):
        names, before, after, why = zip(*rows[size], strict=True)
        ratio = median(b / a for b, a in zip(before, after, strict=True))
        cells = (
            size, len(names), len(set(names)), f"{why.count('') / len(why):.0%}",
            f"{1e3 * median(before):.2f}", f"{1e3 * median(after):.2f}",
            f"{ratio:.1f}",
        )  # fmt: skip
        print(f"| {' | '.join(map(str, cells))} |")
    print(f"\nNot vectorised, of {alone.total()}:")
    for reason, count in (alone - Counter({"": alone[""]})).most_common():
        print(f"* {reason}: {count}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
