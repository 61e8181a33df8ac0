"""Checked cases a second of correct kernels, beside calls alone and a plain loop.

    python -m tests.benchmarks.throughput --device cuda --seconds 10

Each kernel has so many seconds three times: in a campaign, with all contracts that are
always on; in calls on the cases that a campaign draws, nothing else timed; and in a
loop over Hypothesis's arrays that compares with torch in float64. Start-up is excluded.
"""

import argparse
import time
from itertools import cycle
from typing import Final

import torch

from kfuzz.core.recipe import config_of
from kfuzz.evaluation.calling import keywords_of
from kfuzz.evaluation.drawing import search_round, strategy_of
from kfuzz.execution.values.fills import logical_values
from tests.benchmarks.peers.asking import Kfuzz, Peers
from tests.benchmarks.peers.faults import entries
from tests.benchmarks.peers.subject import Budget, Found, Subject
from tests.benchmarks.peers.versions import machine
from tests.helpers.budgets import SIZE_BUDGETS

OPERATORS: Final = ("softmax", "layer_norm", "matmul")
CASES: Final = 32
HEADS: Final = (
    "kernel", "a call alone, us", "a checked case, us", "ratio", "checked cases/s",
    "Hypothesis, cases/s",
)  # fmt: skip


def calls_alone(subject: Subject, budget: Budget, seed: int) -> Found:
    """Call a kernel on drawn cases again and again, after a first round."""
    kernel, device = subject.kernel, subject.device
    on = "cuda" if device.type == "cuda" else "interpret"
    strategy = strategy_of(kernel, SIZE_BUDGETS[on])
    assert strategy is not None
    drawn = []
    search_round(strategy, drawn.append, cases=CASES, seed_value=seed)
    prepared = []
    for case in drawn:
        values = {n: logical_values(case, n, device) for n in case.tensors}
        keywords = keywords_of(kernel, case, values, config_of(case))
        prepared.append((tuple(values.values()), keywords))
    calls, spent = -len(prepared), 0.0
    for tensors, keywords in cycle(prepared):
        copies = [x.clone() for x in tensors]
        torch.accelerator.synchronize() if device.type == "cuda" else None
        began = time.perf_counter()
        kernel.on(*copies, **keywords)
        torch.accelerator.synchronize() if device.type == "cuda" else None
        spent = spent + time.perf_counter() - began if calls >= 0 else 0.0
        calls += 1
        if spent > budget.seconds:
            break
    return Found(False, calls, spent, "")


def main() -> int:
    """Measure and print the table; a finding fails it, for the kernels are correct."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parse.add_argument("--device", default="cpu", choices=("cpu", "interpret", "cuda"))
    parse.add_argument("--seconds", type=float, default=10.0, help="of each part")
    parse.add_argument("--operators", nargs="*", default=list(OPERATORS))
    options = parse.parse_args()
    known = entries("cuda" if options.device == "cuda" else "cpu")
    library = "torch" if options.device == "cpu" else "triton"
    budget, wrong = Budget(options.seconds, None), []
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    with Peers() as peers, Kfuzz() as kfuzz:
        for operator in options.operators:
            entry = known[f"{library}_{operator}"]
            alone = peers.search(f"{__spec__.name}:calls_alone", entry, budget, 1)
            checked = kfuzz.search(entry, budget, 1)
            loop = peers.search("Hypothesis, within 100", entry, budget, 1)
            call, case = (1e6 * f.seconds / max(f.cases, 1) for f in (alone, checked))
            cells = (
                entry.witness.kernel, f"{call:.1f}", f"{case:.1f}",
                f"{case / call:.2f}",
                f"{checked.cases / checked.seconds:.0f}",
                f"{loop.cases / loop.seconds:.0f}",
            )  # fmt: skip
            print(f"| {' | '.join(cells)} |", flush=True)
            wrong += [f"{entry.witness.kernel}: {checked.message}"] * checked.found
    print("; ".join(f"{name} {v}" for name, v in machine().items() if v))
    print("\n".join(f"PROBLEM: {text}" for text in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
