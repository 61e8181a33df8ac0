"""Kernels that are right up to a size and wrong beyond it: which are found, how soon?

    python -m tests.benchmarks.late_faults --device cuda
    python -m tests.benchmarks.late_faults --device interpret --jobs 2

Each kernel of `table.py` is searched by a command of its own, which its first finding
ends, and so is each correct one; with `--together` all by one command. It fails where
a correct kernel has a finding, or nothing of one was compared.
"""

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.benchmarks.late_faults.table import FAMILIES, LATE, correct

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[2]
# A run keeps its time to within 5 % or 10 s; start and end come on top.
GRACE_SECONDS: Final = 300.0
POLL_SECONDS: Final = 0.2
# In the interpreter little beyond is found alone in a minute.
MOST: Final = {"interpret": 1 << 16, "cuda": 1 << 30}
HEADS: Final = (
    "kernel", "threshold", "found after, s", "cases", "structures", "elements",
    "not zero",
)  # fmt: skip


def searched(
    targets: list[str],
    seconds: float,
    options: argparse.Namespace,
    *,
    seed: int,
    first: bool,
) -> dict[str, Any]:
    """Return by name what a command's document says of kernels, with "after".

    That is when the first finding was stored, in seconds from the first case on. Of
    each finding "cause" is what its explanation says.

    Args:
        targets: the kernels.
        seconds: of the run.
        options: of the command line: `device` and `jobs`.
        seed: of the run.
        first: whether the first finding ends it.
    """
    with tempfile.TemporaryDirectory(prefix="kfuzz-late-") as folder:
        place = Path(folder)
        path = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        command = [sys.executable, "-m", "kfuzz", "run", *targets]
        command += ["--device", options.device, "--max-time", f"{seconds:g}s"]
        command += ["--seed", str(seed), "--format", "json", "--quiet"]
        command += ["--corpus", str(place / "corpus")]
        command += ["--max-findings", "1"] if first else []
        command += ["--jobs", str(options.jobs)] if options.jobs else []
        began, seen = time.monotonic(), dict[str, float]()
        with (place / "out").open("wb") as out, (place / "err").open("wb") as err:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=out, stderr=err
            )
            while process.poll() is None:
                took = time.monotonic() - began
                for stored in (place / "corpus").glob("*/*/finding.json"):
                    seen.setdefault(stored.parents[1].name, took)
                if took > seconds + GRACE_SECONDS:
                    process.kill()
                time.sleep(POLL_SECONDS)
        try:
            said = json.loads((place / "out").read_text())
        except ValueError:
            sys.exit((place / "err").read_text(errors="replace")[-2000:])
        start = said["startup_s"]
        for kernel in said["kernels"]:
            name = kernel["kernel"].rpartition("::")[2]
            kernel["after"] = seen.get(name, took) - start
            for finding in kernel["findings"]:
                text = (Path(finding["path"]) / "finding.json").read_text()
                finding["cause"] = (json.loads(text)["explanation"] or {}).get("lines")
        return {k["kernel"].rpartition("::")[2]: k for k in said["kernels"]}


def found(kernel: dict[str, Any]) -> dict[str, Any] | None:
    """Return the confirmed finding of a kernel with the fewest elements."""
    confirmed = [f for f in kernel["findings"] if f["state"] == "confirmed"]
    return min(confirmed, key=lambda f: f["input_elements"], default=None)


def row(name: str, threshold: str, kernel: dict[str, Any]) -> list[str]:
    """Return a row of the table."""
    finding = found(kernel)
    cells = [name, threshold, "–" if finding is None else f"{kernel['after']:.1f}"]
    cells += [str(kernel["cases"] or 0), str(kernel.get("structures") or 0)]
    keys = ("input_elements", "nonzero_elements")
    return cells + ["–" if finding is None else str(finding[key]) for key in keys]


def main() -> int:
    """Search what the command line asks for and print the table and totals."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--device", default="interpret", choices=tuple(MOST))
    add("--seconds", type=float, default=60.0, help="of each command")
    add("--together", type=float, metavar="SECONDS", help="of one command of all")
    add("--most", type=int, metavar="N", help="the largest threshold")
    add("--only", nargs="+", default=["*"], metavar="NAMES", help="names or globs")
    add("--seed", type=int, default=1)
    add("--jobs", type=int, help="of kfuzz; its own default without")
    options = parser.parse_args()
    most = MOST[options.device] if options.most is None else options.most
    thresholds = {correct(family): "" for family in FAMILIES}
    late = {each.name: each.threshold for each in LATE if each.threshold <= most}
    thresholds |= {name: f"{threshold:,}" for name, threshold in late.items()}
    names = [
        name
        for name in thresholds
        if any(fnmatch.fnmatch(name, glob) for glob in options.only)
    ]
    if not names:
        sys.exit("no kernel has such a name, or its threshold is beyond --most")
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}", flush=True)
    seconds = options.together or options.seconds
    said: dict[str, dict[str, Any]] = {}
    for group in [names] if options.together else [[name] for name in names]:
        targets = [f"{HERE / 'kernels.py'}::{name}" for name in group]
        first = not options.together
        said |= searched(targets, seconds, options, seed=options.seed, first=first)
        for name in group:
            line = row(name, thresholds[name], said[name])
            print(f"| {' | '.join(line)} |", flush=True)
    shown = [name for name in names if name in late and found(said[name])]
    sought = [name for name in names if name in late]
    after = [said[name]["after"] for name in shown]
    print(f"\n{len(shown)} of {len(sought)} found", end="")
    print(f", in the median after {median(after):.1f} s" if after else "")
    correct_ones = [name for name in names if name not in late]
    alarms = [name for name in correct_ones if said[name]["findings"]]
    vain = [name for name in correct_ones if not said[name]["decided"]]
    print(f"{len(correct_ones)} correct kernels, {len(alarms)} with a finding")
    for name in alarms + vain:
        print(f"{name}: {said[name]['findings'] or 'nothing was compared'}")
    return 1 if alarms or vain else 0


if __name__ == "__main__":
    raise SystemExit(main())
