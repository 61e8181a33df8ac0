"""What is printed as the cause of planted faults: a table to be checked by hand.

    TRITON_INTERPRET=1 python -m tests.quality.causes --seed 0 --sample 60

Of each fault the first failing case, told apart as it is, and its minimum. Faults that
end their process or need several calls beside one another are left out.
"""

import argparse
import random
import sys
from collections.abc import Iterator

from kfuzz.contracts.witnesses.roster import Entry, roster
from kfuzz.core.budget import Depth
from kfuzz.core.finding import Finding
from kfuzz.core.statement import Role
from kfuzz.core.verdict import Failure
from tests.helpers.in_process import InProcess, drawn, taken_to_minimum

CASES = 250
# Shown by other means than the calls of one process.
_ELSEWHERE = {"K-LIV-01", "C-ORD-03", "C-CMP-02"}


def entries() -> list[Entry]:
    """Return the planted faults that one process can show, by name."""
    found = {
        e.witness.kernel: e
        for e in roster("cpu")
        if e.role is Role.VIOLATING
        and not e.alone
        and e.witness.contract not in _ELSEWHERE
    }
    return [found[name] for name in sorted(found)]


def rows(chosen: list[Entry]) -> Iterator[str]:
    """Yield a row of the table for each fault."""
    for entry in chosen:
        kernel, backend = entry.load(), entry.backend
        runner = InProcess(kernel, budget=backend)
        first, finding = None, None
        for case in drawn(kernel, CASES, budget=backend):
            if runner.evaluator.judge(case, Depth.SEARCH).failure is None:
                continue
            report = runner.evaluator.judge(case, Depth.FULL)
            if report.failure is not None:
                first = report.failure
                finding = taken_to_minimum(runner, case, report, seconds=20.0)
                break
        cells = (
            kernel.name,
            entry.witness.contract,
            _told(first),
            _told(finding.failure) if finding else "",
            _needs(finding),
        )
        yield f"| {' | '.join(cells)} |"


def _told(failure: Failure | None) -> str:
    if failure is None:
        return "not found"
    return f"{failure.contract} {failure.kind}" + (
        f": {failure.cause}" if failure.cause else ""
    )


def _needs(finding: Finding | None) -> str:
    if finding is None or finding.explanation is None:
        return ""
    other = [t for t in finding.explanation.lines if t.startswith("shrinking changed")]
    return ", ".join([*finding.explanation.features, *(["says so"] if other else [])])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", type=int, default=60)
    parser.add_argument("--part", default="0/1", help="I/N: every N-th of the sample")
    given = parser.parse_args()
    every = entries()
    chosen = random.Random(given.seed).sample(every, min(given.sample, len(every)))
    part, parts = map(int, given.part.split("/"))
    sys.stderr.write(f"{len(chosen)} of {len(every)} faults\n")
    for row in rows(chosen[part::parts]):
        sys.stdout.write(f"{row}\n")


if __name__ == "__main__":
    main()
