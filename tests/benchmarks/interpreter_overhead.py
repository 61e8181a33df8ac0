"""What checking every address costs beside Triton's interpreter itself.

    python tests/benchmarks/interpreter_overhead.py [CASES]

Draws cases for each conforming Triton witness as a search does and times each call
with and without the check. The corrections of low precision are on in both. Every
call is timed alone and the least of several counts, so that a busy machine shows
little.
"""

import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.witnesses.functional import WITNESSES
from kfuzz.core.budget import SIZE_BUDGETS
from kfuzz.core.recipe import Case
from kfuzz.engine.falsify import search_round, strategy_of
from kfuzz.execution import memory_hooks
from kfuzz.execution.allocations import GuardedAllocations
from kfuzz.execution.fills import logical_values
from kfuzz.execution.interpreter import watch
from kfuzz.execution.memory import Arena, place
from kfuzz.execution.poison import Poison
from kfuzz.execution.reach import Reach

CASES = 40
REPEATS = 5
SEED = 1


def seconds(kernel: BoundKernel, case: Case, *, checked: bool) -> float:
    """Return how long one call takes, what is around it excluded."""
    values = {n: logical_values(case, n, torch.device("cpu")) for n in case.tensors}
    placement = place(
        case.tensors, values, device="cpu", alignment=16, poison=Poison.NAN,
        arena=Arena("cpu"),
    )  # fmt: skip
    allocations = GuardedAllocations("cpu", Poison.NAN)
    reach = Reach(case.tensors, placement.tensors, allocations, owned=placement.owned)
    scalars = {n: case.scalars[n] for n in kernel.arguments.scalars}
    with ExitStack() as stack:
        if not checked:
            stack.enter_context(patch.object(memory_hooks, "install"))
        stack.enter_context(watch(reach if checked else None))
        stack.enter_context(torch.no_grad())
        stack.enter_context(allocations)
        start = time.perf_counter()
        kernel.function(*placement.tensors.values(), **scalars)
        return time.perf_counter() - start


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else CASES
    torch.set_num_threads(1)
    total = {True: 0.0, False: 0.0}
    for witness in WITNESSES.values():
        if not (witness.conforming and witness.kernel.startswith("triton_")):
            continue
        kernel, cases = witness.load(), []
        strategy = strategy_of(kernel, SIZE_BUDGETS["interpret"])
        assert strategy is not None
        search_round(strategy, cases.append, cases=count, seed_value=SEED)
        spent = {True: 0.0, False: 0.0}
        for case in cases:
            least = {True: float("inf"), False: float("inf")}
            for _ in range(REPEATS):
                for checked in least:
                    try:
                        took = seconds(kernel, case, checked=checked)
                    except (IndexError, RuntimeError):  # refused
                        took = 0.0
                    least[checked] = min(least[checked], took)
            for checked, took in least.items():
                spent[checked] += took
        for checked, took in spent.items():
            total[checked] += took
        plain = spent[False] * 1e3 / len(cases)
        ratio = spent[True] / spent[False]
        print(f"{kernel.name:24} {plain:8.2f} ms a call {ratio:6.2f} x checked")
    print(f"{'all':24} {'':18} {total[True] / total[False]:6.2f} x checked")


if __name__ == "__main__":
    main()
