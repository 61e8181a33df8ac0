"""Planted faults, run by run: how many whose bits differ are judged violations.

    python -m tests.benchmarks.planted_runs                     # every operator
    python -m tests.benchmarks.planted_runs softmax 'rms*' --cases 200
    python -m tests.benchmarks.planted_runs gelu.backward       # a gradient

Cases of every faulty witness that runs on the CPU without Triton's interpreter, beside
torch's own kernel on the same values, whose results are to conform. A run counts where
a result has other bits than the correct kernel's; it is detected where the values alone
are refused. Prints a row for each operator: faults, runs, those whose bits differ,
detected ones, the share, refused runs of the correct kernel (0, but for defects of
torch's that are listed), and seconds.
"""

import argparse
import fnmatch
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.oracle import accept, compare_all, expected_metadata, pose_members
from kfuzz.contracts.witnesses.roster import Entry, roster
from kfuzz.core.budget import Burst, SizeBudget
from kfuzz.core.recipe import Case, config_of, settled
from kfuzz.core.verdict import Role
from kfuzz.evaluation.calling import invocation
from kfuzz.evaluation.drawing import groups_of, search_round, strategy_of
from kfuzz.evaluation.prefilter import declined
from kfuzz.execution.calls.batches import BatchRun, run_batch
from kfuzz.execution.memory.slots import Arena
from kfuzz.execution.values.fills import batch_values
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.accumulation import identical

CASES: Final = 100
ITEMS: Final = 10
SECONDS: Final = 60.0
BUDGET: Final = SizeBudget(1 << 12, 1 << 10)
HEADS: Final = (
    "operator", "faults", "runs", "bits differ", "detected", "%", "alarms", "s"
)  # fmt: skip
CPU: Final = torch.device("cpu")


def pairs(globs: Sequence[str]) -> dict[str, tuple[BoundKernel, list[Entry]]]:
    """Return by operator torch's kernel and the faulty ones."""
    every = [e for e in roster("cpu") if e.backend == "cpu" and not e.alone]
    correct: dict[str, BoundKernel] = {}
    faulty: dict[str, list[Entry]] = {}
    for entry in every:
        if entry.role is Role.VIOLATING:
            faulty.setdefault(_operator(entry), []).append(entry)
        elif entry.witness.kernel.startswith(("torch_", "gradient_of_")):
            correct.setdefault(_operator(entry), entry.load())
    return {
        name: (correct[name], faulty[name])
        for name in sorted(correct.keys() & faulty.keys())
        if any(fnmatch.fnmatchcase(name, glob) for glob in globs)
    }


def _operator(entry: Entry) -> str:
    return entry.load().operator.name


def run(
    kernel: BoundKernel,
    burst: Burst,
    values: Mapping[str, Tensor],
    accepted: Mapping[str, Acceptance],
    case: Case,
    arena: Arena,
) -> BatchRun | None:
    """Return what a kernel makes of the members of a batch; None where it cannot."""
    first = {name: x[0] for name, x in values.items()}
    expected = expected_metadata(accepted)
    asked = invocation(kernel, case, first, expected, config_of(case))
    if asked is None:
        return None
    made = run_batch(asked, values, arena=arena, step=lambda: None, seconds=SECONDS)
    return None if made.unsupported or made.lost or made.dropped else made


def tallied(correct: BoundKernel, faulty: BoundKernel, cases: int) -> Counter[str]:
    """Return the counts of one fault: runs, visible, detected, alarms."""
    counts: Counter[str] = Counter()
    operator, claims = faulty.operator, faulty.declaration
    arena, groups, began = Arena(CPU), groups_of(faulty), time.monotonic()
    # A fault may take fewer scalars than the correct kernel.
    defaults = {n: operator.default_of(n) for n in correct.arguments.scalars}

    def take(case: Case) -> None:
        counts["structures"] += 1
        if counts["runs"] >= cases or declined(faulty, case):
            return
        burst = groups.burst(case, ITEMS, counts["structures"])
        drawn = settled(burst.case, claims)
        settled_case = replace(drawn, scalars=defaults | dict(drawn.scalars))
        values = batch_values(burst, CPU)
        problem = pose_members(operator, settled_case, values, claims)
        try:
            accepted = accept(operator, problem)
        except Exception:  # outside the oracle's domain
            return
        made = [
            run(k, burst, values, accepted, settled_case, arena)
            for k in (correct, faulty)
        ]
        if made[0] is None or made[1] is None:
            return
        for member in range(ITEMS):
            if member in made[0].failed or member in made[1].failed:
                continue
            alone = {n: _member(a, member) for n, a in accepted.items()}
            outputs = [
                {n: y[member] for n, y in one.outputs.items()} for one in made if one
            ]
            refused = [_is_refused(given, alone) for given in outputs]
            visible = any(
                not identical(outputs[0][n], outputs[1][n]) for n in outputs[0]
            )
            counts["runs"] += 1
            counts["alarms"] += refused[0]
            counts["visible"] += visible
            counts["detected"] += visible and refused[1]

    strategy = strategy_of(faulty, BUDGET)
    seed = 7
    while strategy is not None and counts["runs"] < cases:
        before = counts["structures"]
        search_round(strategy, take, cases=cases // ITEMS + 1, seed_value=seed + before)
        if counts["structures"] == before or time.monotonic() - began > SECONDS:
            break
    return counts


def _member(a: Acceptance, i: int) -> Acceptance:
    made = a.mapped(lambda x: x[i : i + 1])
    return made


def _is_refused(
    outputs: Mapping[str, Tensor], accepted: Mapping[str, Acceptance]
) -> bool:
    try:
        found = compare_all(outputs, accepted)
    except ValueError:  # another shape
        return True
    return any(bool(c.missed.any()) for c in found.values())


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; return the exit code."""
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operators", nargs="*", default=["*"])
    parser.add_argument("--cases", type=int, default=CASES, help="of each fault")
    parser.add_argument("--faults", action="store_true", help="a row for each fault")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    print(f"| {' | '.join(HEADS)} |\n{'|---' * len(HEADS)}|")
    total: Counter[str] = Counter()
    for name, (correct, entries) in pairs(options.operators).items():
        began, row = time.monotonic(), Counter[str]()
        for entry in entries:
            found = tallied(correct, entry.load(), options.cases)
            row += found
            if options.faults:
                _print(entry.witness.kernel, 1, found, 0.0)
        _print(name, len(entries), row, time.monotonic() - began)
        total += row
    _print("**all**", 0, total, 0.0)
    return int(not total["visible"])


def _print(name: str, faults: int, counts: Counter[str], spent: float) -> None:
    share = 100 * counts["detected"] / max(counts["visible"], 1)
    row = (
        name, faults, counts["runs"], counts["visible"], counts["detected"],
        f"{share:.1f}", counts["alarms"], round(spent, 1),
    )  # fmt: skip
    print(f"| {' | '.join(map(str, row))} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
