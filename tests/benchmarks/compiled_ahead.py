"""Structures a second of kernels that take a row as one block, compiled ahead or not.

    python -m tests.benchmarks.compiled_ahead --device cuda --seconds 30

Each kernel is searched alone, with an empty cache of Triton's, by one child without
others that compile ahead, then with as many as there are idle processors for.
"""

import argparse
import os
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kfuzz.core.budget import Budget
from kfuzz.core.event import KernelFinished, Notice, RunFinished
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search import campaign
from kfuzz.engine.workers.compile_ahead import MOST, idle_processors
from kfuzz.engine.workers.zygotes import end_all

ROOT: Final = Path(__file__).parents[2]
KERNELS: Final = ROOT / "tests/gpu/targets/one_block_rows.py"
HEADER: Final = (
    "kernel", "children", "cases", "structures", "structures/s", "compiled", "findings",
)  # fmt: skip


@dataclass(frozen=True)
class Searched:
    """What one search did.

    Attributes:
        cases: cases judged.
        structures: different ones.
        compiled: kernels in Triton's cache when it was over.
        findings: findings.
        seconds: of the run.
        notices: what it said of itself.
    """

    cases: int
    structures: int
    compiled: int
    findings: int
    seconds: float
    notices: tuple[str, ...]


def searched(kernel: str, device: str, seconds: float, children: int) -> Searched:
    """Search a kernel with some children that compile ahead."""
    campaign.MOST = children  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder, "cache")
        os.environ["TRITON_CACHE_DIR"] = str(cache)
        end_all()  # zygotes have the environment that they began with
        config = RunConfig(
            targets=(f"{KERNELS}::{kernel}",),
            root=KERNELS.parent,
            corpus=Path(folder, "corpus"),
            seed=1,
            budget=Budget(max_time=seconds),
            device=device,
        )
        finished, elapsed, notices = None, seconds, []
        for event in campaign.run(config, stop=threading.Event()):
            match event:
                case KernelFinished():
                    finished = event
                case RunFinished():
                    elapsed = event.elapsed_s - event.startup_s
                case Notice():
                    notices.append(event.message)
        assert finished is not None
        tried = finished.tried
        return Searched(
            finished.cases,
            0 if tried is None else tried.structures,
            len({path.parent for path in cache.glob("*/*_row.json")}),
            len(finished.findings),
            elapsed,
            tuple(notices),
        )


def main() -> None:
    """Measure what the command line asks for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument(
        "--kernels", nargs="*", default=["softmax_4_warps", "layer_norm_8_warps"]
    )
    options = parser.parse_args()
    most = min(MOST, idle_processors(1))
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    for kernel in options.kernels:
        rates: list[float] = []
        for children in (0, most):
            made = searched(kernel, options.device, options.seconds, children)
            rates.append(made.structures / made.seconds)
            row = (
                kernel, children, made.cases, made.structures, f"{rates[-1]:.1f}",
                made.compiled, made.findings,
            )  # fmt: skip
            print(f"| {' | '.join(map(str, row))} |", flush=True)
            for text in made.notices:
                print(f"  note: {text}", flush=True)
        ratio = rates[1] / max(rates[0], 1e-9)
        print(f"  {kernel}: {ratio:.1f} times the structures a second", flush=True)


if __name__ == "__main__":
    main()
