"""Faults behind narrow branches: which engine reaches them in as many cases?

    python -m tests.benchmarks.narrow_branches --cases 1000 --seeds 3

Each kernel of `tests/helpers/branching.py`
is wrong where a condition of several
parts holds. Both engines search it, one case at a time (no bursts) under the contracts
C-CMP-03 and K-VAL-01, from a number of seeds, until the fault is found or the cases are
used up. Prints a Markdown table.
"""

import argparse
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kfuzz.core.budget import Budget
from kfuzz.core.event import FindingSaved, KernelFinished
from kfuzz.engine.config import Engine, RunConfig
from kfuzz.engine.search.campaign import run_kernels
from kfuzz.targets.load import load_all

ROOT: Final = Path(__file__).resolve().parents[2]
MODULE: Final = "tests.helpers.branching"


@dataclass(frozen=True)
class Fault:
    """A planted fault."""

    kernel: str
    device: str
    condition: str


FAULTS: Final = (
    Fault("softmax_tuned_shape", "cpu", "shape (2, 3, 1023)"),
    Fault("relu_odd_shape", "cpu", "shape (11, 777)"),
    Fault(
        "amax_bfloat16_strides",
        "cpu",
        "bfloat16, rank 3, rows 1 modulo 4, strides (b, 1, c) with c > b > 1",
    ),
    Fault(
        "layer_norm_eps_offset",
        "cpu",
        "float16, eps > 1e-4, offset 3 modulo 4, columns 1 modulo 4 and above 8",
    ),
    Fault(
        "relu_narrow_body",
        "interpret",
        "in the Triton body: 129 columns, 5 rows, padded",
    ),
)


@dataclass(frozen=True)
class Attempt:
    """One search.

    Attributes:
        found: whether it came upon the fault.
        cases: cases until then, or all of them.
        seconds: likewise, the start of the child processes included.
    """

    found: bool
    cases: int
    seconds: float


def search(fault: Fault, engine: Engine, *, cases: int, seed: int) -> Attempt:
    """Search a kernel until its fault is found."""
    kernels = load_all((f"{MODULE}:{fault.kernel}",), root=ROOT)
    stop = threading.Event()
    began = time.monotonic()
    seconds, judged = 0.0, 0
    with tempfile.TemporaryDirectory() as corpus:
        config = RunConfig(
            targets=(),
            root=ROOT,
            corpus=Path(corpus),
            seed=seed,
            budget=Budget(max_time=None, max_cases=cases),
            device=fault.device,
            contracts=("C-CMP-03", "K-VAL-01"),
            burst=1,
            engine=engine,
        )
        for event in run_kernels(config, kernels, stop=stop):
            match event:
                case FindingSaved() if not stop.is_set():
                    seconds = time.monotonic() - began
                    stop.set()
                case KernelFinished():
                    judged = event.cases
    seconds = seconds or time.monotonic() - began
    return Attempt(stop.is_set(), judged, seconds)


def cells(attempts: list[Attempt]) -> str:
    """Return one engine's cells of a row."""
    found = [a for a in attempts if a.found]
    share = f"{len(found)} of {len(attempts)}"
    if 2 * len(found) <= len(attempts):
        return f"{share} | – | –"
    # Over all attempts: those that ended in vain took longer than any.
    cases = statistics.median_high(a.cases for a in attempts)
    seconds = statistics.median_high(a.seconds for a in attempts)
    return f"{share} | {cases} | {seconds:.0f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kernel", default="", help="one of them alone")
    given = parser.parse_args()
    heads = ("found", "cases", "s")
    columns = [f"{engine} {head}" for engine in Engine for head in heads]
    print(f"| fault where | {' | '.join(columns)} |")
    print(f"|---|{'---|' * len(columns)}", flush=True)
    for fault in FAULTS:
        if given.kernel not in ("", fault.kernel):
            continue
        row = [fault.condition]
        for engine in Engine:
            attempts = [
                search(fault, engine, cases=given.cases, seed=seed)
                for seed in range(given.seeds)
            ]
            print(fault.kernel, engine, attempts, file=sys.stderr, flush=True)
            row.append(cells(attempts))
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
