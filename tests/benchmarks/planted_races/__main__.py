"""Kernels with a race between programs: which are found, and is a twin reported?

    python -m tests.benchmarks.planted_races --jobs 2
    python -m tests.benchmarks.planted_races --together 300 --only '*_correct'

Each kernel of `kernels.py` is searched in Triton's interpreter by a command of its own,
which its first finding ends, and so is each twin; with `--together` all by one. It
fails where a race is missed, a twin has a finding, or nothing of one was compared.
"""

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[2]
GRACE_SECONDS: Final = 120.0
CONTRACT: Final = "C-ORD-02"
HEADS: Final = ("kernel", "found after, s", "cases", "findings")


def searched(
    names: list[str], seconds: float, options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Return by name what the document of a command says, with what it "took"."""
    with tempfile.TemporaryDirectory(prefix="kfuzz-races-") as folder:
        path = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        command = [sys.executable, "-m", "kfuzz", "run"]
        command += [f"{HERE / 'kernels.py'}::{name}" for name in names]
        command += ["--device", "interpret", "--max-time", f"{seconds:g}s"]
        command += ["--max-findings", "1"] if len(names) == 1 else []
        command += ["--seed", str(options.seed), "--quiet", "--format", "json"]
        command += ["--corpus", str(Path(folder) / "corpus"), "--no-prove"]
        command += ["--jobs", str(options.jobs)] if options.jobs else []
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True,
            timeout=seconds + GRACE_SECONDS,
        )  # fmt: skip
    try:
        said = json.loads(done.stdout)
    except ValueError:
        sys.exit(done.stderr[-2000:])
    took = said["elapsed_s"] - said["startup_s"]
    made = {k["kernel"].rpartition("::")[2]: k for k in said["kernels"]}
    return {name: {**kernel, "took": took} for name, kernel in made.items()}


def wrong_with(name: str, kernel: dict[str, Any]) -> list[str]:
    """Return what is not as it should be of one kernel's search."""
    races = [f for f in kernel["findings"] if f["contract"] == CONTRACT]
    others = [f for f in kernel["findings"] if f not in races]
    if name.endswith("_correct"):
        others += races
    elif not any(f["state"] == "confirmed" for f in races):
        return [f"{name}: no race is found", *map(str, others)]
    if not kernel["decided"]:
        return [f"{name}: nothing was compared"]
    return [f"{name}: {f['contract']} {f['message']}" for f in others]


def main() -> int:
    """Search what the command line asks for, print the table, and say what is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--seconds", type=float, default=30.0, help="of each command")
    add("--together", type=float, metavar="SECONDS", help="of one command of all")
    add("--only", nargs="+", default=["*"], metavar="NAMES", help="names or globs")
    add("--seed", type=int, default=1)
    add("--jobs", type=int, help="of kfuzz; its own default without")
    options = parser.parse_args()
    from tests.benchmarks.planted_races.kernels import PAIRS

    every = [name for pair in PAIRS for name in (pair, f"{pair}_correct")]
    names = [n for n in every if any(fnmatch.fnmatch(n, g) for g in options.only)]
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}", flush=True)
    wrong, after = [], []
    seconds = options.together or options.seconds
    for group in [names] if options.together else [[name] for name in names]:
        for name, kernel in searched(group, seconds, options).items():
            faults = wrong_with(name, kernel)
            wrong += faults
            found = not (faults or name.endswith("_correct"))
            after += [kernel["took"]] if found else []
            shown = f"{kernel['took']:.1f}" if found and not options.together else ""
            row = name, shown, str(kernel["cases"] or 0), str(len(kernel["findings"]))
            print(f"| {' | '.join(row)} |", flush=True)
    races = [name for name in names if not name.endswith("_correct")]
    print(f"\n{len(after)} of {len(races)} found", end="")
    print(f", in the median after {median(after):.1f} s" if after else "")
    print(f"{len(names) - len(races)} correct kernels")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
