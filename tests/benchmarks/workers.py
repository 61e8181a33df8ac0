"""Cases of a search by its number of workers, or of GPUs.

    python -m tests.benchmarks.workers 1 4 16
    python -m tests.benchmarks.workers --device cuda --kernels 4 1 2

Correct kernels of `late_faults` are searched by one command, `kfuzz run`, for so many
seconds each time. Numbers are of workers in Triton's interpreter, or of GPUs, which
have as many workers as a run gives them by itself.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.late_faults.table import FAMILIES, correct

KERNELS: Final = Path(__file__).parent / "late_faults" / "kernels.py"
HEADS: Final = ("workers", "cases", "structures", "times")


def searched(targets: list[str], number: int, options: argparse.Namespace) -> Any:
    """Return what a run of so many workers, or GPUs, says of its kernels."""
    command = [sys.executable, "-m", "kfuzz", "run", *targets, "--seed", "1", "--quiet"]
    command += ["--format", "json", "--max-time", f"{options.seconds:g}s", "--no-prove"]
    if options.device == "cuda":
        command += ["--device", ",".join(f"cuda:{i}" for i in range(number))]
    else:
        command += ["--device", "interpret", "--jobs", str(number)]
    with tempfile.TemporaryDirectory(prefix="kfuzz-workers-") as folder:
        command += ["--corpus", folder]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{number}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)["kernels"]


def main() -> None:
    """Search with each number, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("numbers", nargs="+", type=int, help="of workers, or of GPUs")
    add("--device", choices=("interpret", "cuda"), default="interpret")
    add("--kernels", type=int, default=1, help="searched by one command")
    add("--seconds", type=float, default=20.0, help="of each")
    options = parser.parse_args()
    names = sorted(FAMILIES, key=lambda family: family != "softmax")
    targets = [f"{KERNELS}::{correct(name)}" for name in names[: options.kernels]]
    first = 0
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    for number in options.numbers:
        kernels = searched(targets, number, options)
        cases = sum(kernel["cases"] for kernel in kernels)
        structures = sum(kernel["structures"] for kernel in kernels)
        first = first or cases
        row = number, f"{cases:,}", f"{structures:,}", f"{cases / max(first, 1):.2f}"
        print(f"| {' | '.join(map(str, row))} |", flush=True)


if __name__ == "__main__":
    main()
