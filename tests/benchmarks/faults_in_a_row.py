"""Planted faults in a row: is each attributed to its own case, and is nothing left?

    python -m tests.benchmarks.faults_in_a_row --device cuda --faults 200

One kernel (`turned_kernel.py`) does as its input says. Faults and good cases come in a
random order through one runner, as in a campaign. The command fails if a case is
attributed what another one did, if a good case does not conform, or if a process or
device memory is left over.
"""

import argparse
import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.core.budget import Depth
from kfuzz.core.errors import KfuzzError
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import CaseReport, Kind, Verdict
from kfuzz.engine.workers import runner as waiting
from kfuzz.engine.workers import zygotes
from kfuzz.engine.workers.children import Place
from kfuzz.engine.workers.runner import Runner
from kfuzz.engine.workers.zygotes import Backend
from kfuzz.execution.processes import wire as table
from kfuzz.targets.load import load_all
from tests.helpers.budgets import SIZE_BUDGETS

ROOT: Final = Path(__file__).resolve().parents[2]
KERNEL: Final = Path(__file__).with_name("turned_kernel.py")
# What the first element asks for; the numbers are those of the kernel, which takes
# none for one that other data of the same case may hold.
TURNS: Final = {"well": 0, "hang": 1, "assert": 2, "fault": 3, "raise": 4}
FIRST: Final = 54320.0
# Most good cases between two faults; often there are none.
BETWEEN: Final = 3
# How much longer than the slowest case a hang takes.
HANG_FACTOR: Final = 4.0
# Seconds after which what was freed must have been given back.
SETTLE_SECONDS: Final = 20.0
# Device memory that other things on the machine may come to hold meanwhile.
SLACK_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class Step:
    """One judged case.

    Attributes:
        asked: a key of `TURNS`.
        seen: what the report says: a kind of failure, "conforms" or something else.
        right: whether that is what was asked for.
    """

    asked: str
    seen: str
    right: bool


def plan(faults: int, hangs: int, seed: int) -> list[str]:
    """Return what each case asks for: faults in a random order among good cases."""
    draw = random.Random(seed)
    others = [k for k in TURNS if k not in ("well", "hang")]
    turns = ["hang"] * hangs
    turns += [others[i % len(others)] for i in range(faults - hangs)]
    draw.shuffle(turns)
    asked = ["well"]
    for turn in turns:
        asked += [turn] + ["well"] * draw.randint(0, BETWEEN)
    return [*asked, "well"]


def case(number: int, asked: str) -> Case:
    """Return a case of which no other has the values."""
    first = -FIRST - TURNS[asked] if asked != "well" else 0.0
    values = struct.pack("<8f", first, number, *range(6))
    return Case({"x": TensorSpec((2, 4), ("d0", "d1"), "float32", values=values)})


def expected(asked: str, report: CaseReport, *, on_cuda: bool) -> bool:
    """Whether a report says what the case did, and nothing else."""
    failure = report.failure
    if asked == "well":
        return failure is None and report.verdicts.get("K-VAL-01") is Verdict.CONFORMS
    if failure is None or failure.contract != "K-LIV-01":
        return False
    if asked == "raise":
        return failure.kind is Kind.RAISES and failure.detail == "RuntimeError"
    if asked == "hang":
        return failure.kind is Kind.HANG
    if on_cuda:
        return failure.kind is Kind.DEVICE_FAULT
    signal = "SIGABRT" if asked == "assert" else "SIGSEGV"
    return failure.kind is Kind.CRASH and failure.detail == signal


def described(report: CaseReport) -> str:
    """Return what a report says, in a few words."""
    if report.failure is not None:
        f = report.failure
        return f"{f.contract} {f.kind} {f.detail} {f.message}".strip()
    return report.error or report.unsupported or report.refusal or "conforms"


def campaign(asked: list[str], device: str) -> Iterator[Step | int]:
    """Judge the cases; yield each, then how many processes were left at its end."""
    backend = Backend(device)
    backend.quiet = True
    zygote = None
    try:
        loaded = load_all((f"{KERNEL}::relu_turned",), root=ROOT)[0]
        place = Place(
            device=backend.device,
            backend=backend.name,
            budget=SIZE_BUDGETS[backend.name],
            classes=tuple(sorted(c.id for c in ATTRIBUTION)),
            root=ROOT,
        )
        runner = Runner(loaded, place, backend.fork)
        try:
            for number, turn in enumerate(asked):
                try:
                    report = runner.judge(case(number, turn), Depth.SEARCH)
                except KfuzzError as error:
                    report = CaseReport({}, error=f"{type(error).__name__}: {error}")
                leased = next(iter(backend._leased.values()), None)
                zygote = leased.zygote.pid if leased else None
                right = expected(turn, report, on_cuda=backend.name == "cuda")
                yield Step(turn, described(report), right)
        finally:
            runner.close()
    finally:
        backend.close()
        zygotes.end_all()  # kept for the next campaign
    yield len(table.session_of(zygote)) if zygote else 0


def device_state() -> tuple[int, frozenset[int]]:
    """Return a GPU's used bytes and the processes on it, as a fresh process sees it."""
    code = "import torch; f, t = torch.cuda.mem_get_info(); print(t - f)"
    used = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    listed = subprocess.run(
        ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    pids = frozenset(int(w) for w in listed.stdout.split() if w.isdigit())
    return int(used.stdout.split()[-1]), pids


def leaks(before: tuple[int, frozenset[int]]) -> list[str]:
    """Return what is on a GPU that was not before, once it has had time to go."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        used, pids = device_state()
        found = []
        if used > before[0] + SLACK_BYTES:
            found.append(f"{(used - before[0]) >> 20} MiB of device memory are left")
        if new := pids - before[1]:
            found.append(f"processes are left on the device: {sorted(new)}")
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def main() -> int:
    """Run the campaign and print what it showed."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parse.add_argument("--device", default="cuda", help="cpu or cuda")
    parse.add_argument("--faults", type=int, default=200)
    parse.add_argument("--hangs", type=int, default=4, help="how many of them hang")
    parse.add_argument("--hang-seconds", type=float, default=3.0, help="time limit")
    parse.add_argument("--seed", type=int, default=0)
    options = parse.parse_args()
    # Shorter than a campaign's, which wait for kernels that are only slow.
    waiting.HANG_SECONDS = options.hang_seconds  # type: ignore[misc]
    waiting.HANG_FACTOR = waiting.SUSPECT_FACTOR = HANG_FACTOR  # type: ignore[misc]
    on_cuda = options.device.startswith("cuda")
    before = device_state() if on_cuda else None
    asked = plan(options.faults, min(options.hangs, options.faults), options.seed)
    steps, left, start = [], 0, time.perf_counter()
    for number, step in enumerate(campaign(asked, options.device)):
        if isinstance(step, int):
            left = step
            continue
        steps.append(step)
        if not step.right:
            print(f"case {number} asked for {step.asked}: {step.seen}", flush=True)
    elapsed = time.perf_counter() - start
    problems = [f"case {i}" for i, s in enumerate(steps) if not s.right]
    if len(steps) != len(asked):
        problems.append(f"{len(asked) - len(steps)} cases were not judged")
    if left:
        problems.append(f"{left} processes are left")
    if before is not None:
        problems += leaks(before)
    print("| asked for | cases | attributed rightly |\n|---|---|---|")
    for turn in TURNS:
        own = [s.right for s in steps if s.asked == turn]
        print(f"| {turn} | {len(own)} | {sum(own)} |")
    faults = sum(s.asked != "well" for s in steps)
    wrong = sum(not s.right for s in steps)
    print(
        f"{faults} faults among {len(steps)} cases in {elapsed:.1f} s; "
        f"{wrong} attributed wrongly; {os.cpu_count()} processors"
    )
    for problem in problems:
        print(f"PROBLEM: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
