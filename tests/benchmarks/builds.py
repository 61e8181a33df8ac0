"""Correct Triton witnesses, compiled for GPUs that are not here.

    python -m tests.benchmarks.builds [--cases 12] [GLOB …]

A row for each GPU: launches that were compiled, kernels with one that does not fit and
why, kernels of which nothing is known and why. Ends with exit code 1 where a kernel is
not known to build.
"""

import argparse
import fnmatch
import os
import sys
import time
from collections import defaultdict
from dataclasses import replace

os.environ["TRITON_INTERPRET"] = "0"

from kfuzz.contracts.witnesses.roster import everywhere
from kfuzz.evaluation.building import Builder
from kfuzz.execution.launches.gpu_targets import GPU_TARGETS
from tests.helpers.in_process import drawn

TARGETS = (
    "gfx90a",
    "gfx942",
    "gfx950",
    "gfx1100",
    "gfx1201",
    "sm_80",
    "sm_90",
    "sm_100",
)


def main() -> int:
    """Compile and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20.0, help="for a kernel")
    parser.add_argument("--part", default="1/1", help="every N-th kernel from the I-th")
    parser.add_argument("globs", nargs="*", default=["*"])
    options = parser.parse_args()
    built: defaultdict[str, int] = defaultdict(int)
    misfits: defaultdict[str, dict[str, str]] = defaultdict(dict)
    unknown: dict[str, str] = {}
    kernels = [
        (name, witness)
        for name, witness in everywhere().items()
        if witness.conforming and name.startswith("triton_")
        and any(fnmatch.fnmatchcase(name, glob) for glob in options.globs)
    ]  # fmt: skip
    first, step = map(int, options.part.split("/"))
    kernels = kernels[first - 1 :: step]
    for name, witness in kernels:
        kernel = witness.load()
        home = f"kfuzz.contracts.witnesses.{witness.module}"
        opened = {"cwd": ".", "root": ".", "file": "", "module": home, "name": name}
        builder, known = Builder(opened), 0
        reason = "no case was drawn"
        began = time.monotonic()
        for case in drawn(kernel, options.cases, budget="interpret"):
            if time.monotonic() - began > options.seconds:
                break
            for target in TARGETS:
                made = builder(replace(case, targets=(target,)), lambda: None)
                built[target] += made.built
                known += made.built
                reason = made.reason or reason
                for misfit in made.misfits:
                    misfits[target].setdefault(name, misfit.why)
        builder.close()
        if not known:
            unknown[name] = reason
        print(f"{name}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    print("| GPU | shared memory, KiB | launches compiled | kernels that do not fit |")
    print("|---|---|---|---|")
    for target in TARGETS:
        told = "; ".join(f"`{n}`: {why}" for n, why in misfits[target].items())
        shared = GPU_TARGETS[target].shared // 1024
        print(f"| {target} | {shared} | {built[target]} | {told or '–'} |")
    print(f"\n{len(kernels)} kernels; not known: {len(unknown)}")
    for name, reason in unknown.items():
        print(f"* `{name}`: {reason}")
    return int(bool(unknown))


if __name__ == "__main__":
    sys.exit(main())
