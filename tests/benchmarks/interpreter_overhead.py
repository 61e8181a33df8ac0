"""What watching a call costs beside Triton's interpreter as it is installed.

    python -m tests.benchmarks.interpreter_overhead [CASES]

Draws cases for each conforming Triton witness as a search does and times each call by
turns: as it is; with every address checked and allocations guarded; with bfloat16 and
float8 computed as GPUs do, besides; and with what the interpreter looks up time and
again kept, which is how kfuzz calls. What is around a call is excluded. Processor time;
of each case the median ratio of its turns, so that a busy machine shows little.
"""

import os
import statistics
import sys
import time
from contextlib import ExitStack
from typing import Final
from unittest.mock import patch

os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported

import torch

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.witnesses.roster import everywhere
from kfuzz.core.case_surroundings import config_of
from kfuzz.core.recipe import Case
from kfuzz.engine.search.case_drawing import search_round, strategy_of
from kfuzz.evaluation.calling import keywords_of
from kfuzz.execution.interpreter import low_precision_patches as low_precision
from kfuzz.execution.interpreter import tables as interpreter_tables
from kfuzz.execution.interpreter import watch as interpreter
from kfuzz.execution.interpreter.reach import Reach
from kfuzz.execution.memory.allocations import GuardedAllocations
from kfuzz.execution.memory.arena import Arena
from kfuzz.execution.memory.placement import place
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.values.fills import logical_values
from tests.helpers.budgets import SIZE_BUDGETS

CASES: Final = 12
TURNS: Final = 7
SEED: Final = 1
# Seconds of a plain call; shorter ones launch nothing, or next to nothing.
LEAST: Final = 2e-3
PLAIN: Final = "as installed"
WAYS: Final = (PLAIN, "checked", "and exact", "and kept lookups")
DTYPES: Final = ("float32", "float16", "bfloat16")


def seconds(kernel: BoundKernel, case: Case, way: str) -> float:
    """Return how long one call takes, what is around it excluded."""
    values = {n: logical_values(case, n, torch.device("cpu")) for n in case.tensors}
    placement = place(
        case.tensors, values, device="cpu", alignment=16, poison=Poison.NAN,
        arena=Arena("cpu"),
    )  # fmt: skip
    keywords = keywords_of(kernel, case, values, config_of(case))
    with ExitStack() as stack:
        enter = stack.enter_context
        enter(torch.no_grad())
        if way != PLAIN:
            if way != WAYS[-1]:
                enter(patch.dict(interpreter._again, clear=True))
                enter(patch.object(interpreter_tables, "install"))
            if way == "checked":
                nothing = frozenset[str]()
                enter(patch.object(low_precision, "correctable", lambda _: nothing))
            allocations = GuardedAllocations("cpu", Poison.NAN)
            reach = Reach(
                case.tensors, placement.tensors, allocations, owned=placement.owned
            )
            enter(interpreter.watch(reach))
            enter(allocations)
        start = time.process_time()
        kernel.on(*placement.tensors.values(), **keywords)
        return time.process_time() - start


def measured(kernel: BoundKernel, case: Case) -> dict[str, float] | None:
    """Return the seconds of a plain call, and the others' over it.

    None if the kernel refuses the case, or has next to nothing to do.
    """
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    try:
        for _ in range(TURNS):
            for way, times in taken.items():
                times.append(seconds(kernel, case, way))
    except (IndexError, RuntimeError):
        return None
    plain = taken[PLAIN]
    if statistics.median(plain) < LEAST:
        return None
    made = {
        way: statistics.median(t / p for t, p in zip(times, plain, strict=True))
        for way, times in taken.items()
    }
    return {**made, PLAIN: statistics.median(plain)}


def row(name: str, found: list[dict[str, float]]) -> str:
    """Return a line of the table."""
    cells = [f"{statistics.median(f[PLAIN] for f in found) * 1e3:.1f}"]
    cells += [f"{statistics.median(f[way] for f in found):.2f}" for way in WAYS[1:]]
    return f"| {name} | {len(found)} | {' | '.join(cells)} |"


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else CASES
    torch.set_num_threads(1)
    by_dtype: dict[str, list[dict[str, float]]] = {dtype: [] for dtype in DTYPES}
    print(f"| kernel | calls | {PLAIN}, ms | {' | '.join(WAYS[1:])} |")
    print("|---|---|---|---|---|---|")
    for witness in everywhere().values():
        if not (witness.conforming and witness.kernel.startswith("triton_")):
            continue
        kernel, cases, found = witness.load(), [], []
        strategy = strategy_of(kernel, SIZE_BUDGETS["interpret"])
        assert strategy is not None
        search_round(strategy, cases.append, cases=count, seed_value=SEED)
        for case in cases:
            made = measured(kernel, case)
            if made is not None:
                found.append(made)
                by_dtype.get(case.data.dtype, []).append(made)
        if found:
            print(row(kernel.name, found), flush=True)
    for dtype, of in by_dtype.items():
        if of:
            print(row(dtype, of))
    print(row("all", [f for of in by_dtype.values() for f in of]))


if __name__ == "__main__":
    main()
