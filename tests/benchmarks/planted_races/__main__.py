"""Kernels with a race between programs: which are found alone, and is a twin reported?

    python -m tests.benchmarks.planted_races --jobs 2

Each kernel of `kernels.py` is searched in Triton's interpreter by a command of its own,
which its first finding ends, and so is its twin. It fails where a race is missed, a
twin has a finding, or nothing of one was compared.
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
HEADS: Final = ("kernel", "found after, s", "cases", "twin's cases", "twin")


def searched(name: str, seconds: float, options: argparse.Namespace) -> dict[str, Any]:
    """Return what the document of a command says of one kernel."""
    with tempfile.TemporaryDirectory(prefix="kfuzz-races-") as folder:
        path = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        command = [sys.executable, "-m", "kfuzz", "run"]
        command += [f"{HERE / 'kernels.py'}::{name}", "--device", "interpret"]
        command += ["--max-time", f"{seconds:g}s", "--seed", str(options.seed)]
        command += ["--max-findings", "1", "--quiet", "--format", "json"]
        command += ["--corpus", str(Path(folder) / "corpus")]
        command += ["--jobs", str(options.jobs)] if options.jobs else []
        command += ["--prove" if options.prove else "--no-prove"]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True,
            timeout=seconds + GRACE_SECONDS,
        )  # fmt: skip
    try:
        said = json.loads(done.stdout)
    except ValueError:
        sys.exit(done.stderr[-2000:])
    (kernel,) = said["kernels"]
    return {**kernel, "took": said["elapsed_s"] - said["startup_s"]}


def main() -> int:
    """Search what the command line asks for, print the table, and say what is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--seconds", type=float, default=30.0, help="of each command")
    add("--only", nargs="+", default=["*"], metavar="NAMES", help="names or globs")
    add("--seed", type=int, default=1)
    add("--jobs", type=int, help="of kfuzz; its own default without")
    add("--prove", action="store_true", help="have each proved meanwhile")
    options = parser.parse_args()
    from tests.benchmarks.planted_races.kernels import PAIRS

    names = [n for n in PAIRS if any(fnmatch.fnmatch(n, g) for g in options.only)]
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}", flush=True)
    wrong, after = [], []
    for name in names:
        raced = searched(name, options.seconds, options)
        twin = searched(f"{name}_correct", options.seconds, options)
        confirmed = [
            f for f in raced["findings"]
            if f["state"] == "confirmed" and f["contract"] == CONTRACT
        ]  # fmt: skip
        others = [f for f in raced["findings"] if f not in confirmed]
        wrong += [f"{name}: {f['contract']} {f['message']}" for f in others]
        wrong += [] if confirmed or others else [f"{name}: not found"]
        alarms = [f"{f['contract']} {f['message']}" for f in twin["findings"]]
        wrong += [f"{name}_correct: {alarm}" for alarm in alarms]
        wrong += [] if twin["decided"] else [f"{name}_correct: nothing was compared"]
        after += [raced["took"]] if confirmed else []
        row = (
            name, f"{raced['took']:.1f}" if confirmed else "–",
            str(raced["cases"] or 0), str(twin["cases"] or 0), str(len(alarms)),
        )  # fmt: skip
        print(f"| {' | '.join(row)} |", flush=True)
    print(f"\n{len(after)} of {len(names)} found", end="")
    print(f", in the median after {median(after):.1f} s" if after else "")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
