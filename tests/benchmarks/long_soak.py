"""A long run whose children are killed: its memory has to stay flat.

    python -m tests.benchmarks.long_soak --seconds 1800 --jobs 2

Witnesses and their twins are searched by `kfuzz run`, on the CPU and then in Triton's
interpreter, while children are killed at random and the memory of the run is watched.
`calamities.py` looks for what is lost where searches are killed.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean
from typing import Final

from kfuzz.contracts.witnesses.roster import roster
from kfuzz.core.verdict import Role
from kfuzz.execution.processes import wire

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = "kfuzz.contracts.witnesses"
# Few enough for each to have several turns: what is kept of a kernel is kept once.
KERNELS: Final = 40
# Between two kills of a child, in seconds.
KILLS: Final = (2.0, 6.0)
# The first part of a run, in which the memory may still grow.
WARMING: Final = 1 / 3
GROWTH: Final = 1.15
# 3: what a kill of its child kept from being judged; 4: a busy machine on which no
# case was judged in time.
CODES: Final = (0, 1, 3, 4)


def searched(
    device: str, seconds: float, jobs: int, chance: random.Random
) -> tuple[list[float], int]:
    """Search witnesses of a device, and kill children meanwhile.

    Returns:
        The search's memory in megabytes, twice a second, and how many it killed.
    """
    entries = [e for e in roster("cpu") if e.role is not Role.IMPOSTOR]
    chosen = chance.sample([e for e in entries if e.backend == device], KERNELS)
    targets = [f"{PACKAGE}.{e.witness.module}:{e.witness.kernel}" for e in chosen]
    command = [sys.executable, "-m", "kfuzz", "run", *targets, "--device", device]
    command += ["--max-time", f"{seconds:.0f}s", "--jobs", str(jobs), "-q"]
    memory, kills = [], 0
    with tempfile.TemporaryDirectory(prefix="kfuzz-soak-") as folder:
        command += ["--corpus", folder]
        run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        due = time.monotonic() + chance.uniform(*KILLS)
        while run.poll() is None:
            time.sleep(0.5)
            # The command, a process that watches, the search, what children fork from.
            search = grandchildren(run.pid)
            if size := max(map(resident, search), default=0.0):
                memory.append(size)
            if time.monotonic() < due:
                continue
            due = time.monotonic() + chance.uniform(*KILLS)
            if children := [c for each in search for c in grandchildren(each)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chance.choice(children), signal.SIGKILL)
                    kills += 1
    if run.returncode not in CODES:
        sys.exit(f"{device}: exit code {run.returncode}")
    return memory, kills


def grandchildren(pid: int) -> list[int]:
    """Return the processes whose parents are children of a process."""
    return [p for child in wire.children_of(pid) for p in wire.children_of(child)]


def resident(pid: int) -> float:
    """Return a process's resident memory in megabytes, 0 if it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


def main() -> int:
    """Search on both; print what the memory came to."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parse.add_argument("--seconds", type=float, default=1800.0, help="of both runs")
    parse.add_argument("--jobs", type=int, default=2)
    parse.add_argument("--seed", type=int, default=0, help="of what goes wrong when")
    options = parse.parse_args()
    chance = random.Random(options.seed)
    flat = True
    for device in ("cpu", "interpret"):
        memory, kills = searched(device, options.seconds / 2, options.jobs, chance)
        warm = memory[int(WARMING * len(memory)) :]
        quarter = len(warm) // 4 + 1
        early, late = mean(warm[:quarter]), mean(warm[-quarter:])
        flat = flat and late <= GROWTH * early
        print(
            f"{device}, {KERNELS} kernels, {kills} children killed: resident MB first "
            f"{memory[0]:.0f}, when warm {early:.0f}, last {late:.0f}"
        )
    print("memory is flat" if flat else "memory grows")
    return 0 if flat else 1


if __name__ == "__main__":
    raise SystemExit(main())
