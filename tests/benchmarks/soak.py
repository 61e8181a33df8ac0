"""A long run of every correct kernel: no case may be charged with anything.

    python -m tests.benchmarks.soak --cases 100000 --seconds 500 --state soak.json

Call it again with the same state until it says that all cases are judged: each call
goes on where the last one ended, with other cases. Kernels are searched side by side in
processes of their own, a slice of cases at a time. It prints a table, and fails on a
finding, or where a kernel could not be judged.
"""

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kfuzz.contracts.witnesses.roster import Entry, roster
from kfuzz.core.budget import Budget
from kfuzz.core.calibration import Role
from kfuzz.core.event import FindingSaved, KernelFinished, Notice
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.campaign import run

MODULE: Final = "tests.benchmarks.soak"
ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = "kfuzz.contracts.witnesses"
# Copies of torch's kernels, which are searched where platforms are.
PLANTED: Final = "planted"
# A slice shorter than this is its start more than its cases.
LEAST_SECONDS: Final = 25.0
# For a run to end after its time, and for the start of Python and torch.
GRACE_SECONDS: Final = 60.0
SEED_STEP: Final = 1_000_003
# How a campaign begins to tell that it can do nothing more with a kernel.
GIVEN_UP: Final = "given up"


@dataclass(frozen=True)
class Slice:
    """Some cases of one kernel.

    Attributes:
        target: module:name.
        device: as `--device`.
        seed: of the run.
        cases: most of them.
        seconds: most of them.
        corpus: folder for findings.
    """

    target: str
    device: str
    seed: int
    cases: int
    seconds: float
    corpus: str


def chosen(device: str, globs: list[str]) -> list[Entry]:
    """Return the correct kernels of a device that the globs name."""
    kind = "cuda" if device.startswith("cuda") else "cpu"
    backend = "cuda" if kind == "cuda" else device
    return [
        e
        for e in roster(kind)
        if e.role is Role.CONFORMING
        and e.backend == backend
        and e.witness.module.partition(".")[0] != PLANTED
        and any(fnmatch.fnmatchcase(e.witness.kernel, g) for g in globs)
    ]


def searched(part: Slice) -> dict[str, Any]:
    """Run a slice in this process; return what it showed."""
    config = RunConfig(
        targets=(part.target,),
        root=ROOT,
        corpus=Path(part.corpus),
        seed=part.seed,
        budget=Budget(max_time=part.seconds, max_cases=part.cases),
        device=part.device,
    )
    shown: dict[str, Any] = {"cases": 0, "findings": [], "notices": []}
    for event in run(config, stop=threading.Event()):
        if isinstance(event, FindingSaved) and event.stage == "done":
            f = event.finding
            shown["findings"].append(
                f"{f.id} {f.signature.contract} {f.signature.kind} {f.state}: "
                f"{f.failure.message} ({event.path})"
            )
        elif isinstance(event, Notice):
            shown["notices"].append(event.message)
        elif isinstance(event, KernelFinished):
            shown["cases"] = event.cases
            shown["screened"] = event.screened
            shown["refusals"] = sum(r.cases for r in event.refusals)
    return shown


def in_process(part: Slice) -> dict[str, Any]:
    """Run a slice in a fresh process; what keeps it from answering is told."""
    command = [sys.executable, "-m", MODULE, "--slice", json.dumps(vars(part))]
    env = {"OMP_NUM_THREADS": "1", **os.environ}
    try:
        done = subprocess.run(
            command, env=env, check=False, capture_output=True, text=True,
            timeout=part.seconds + GRACE_SECONDS, cwd=ROOT,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"cases": 0, "findings": [], "error": "it did not end in time"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        tail = done.stderr.strip()[-600:]
        return {"cases": 0, "findings": [], "error": f"rc {done.returncode}: {tail}"}
    return json.loads(lines[-1])


class Soak:
    """What has been searched so far, kept in a file after each slice.

    Args:
        path: the file.
        names: of the kernels.
        goal: cases for each.
        seed: of the first slices.
    """

    def __init__(self, path: Path, names: list[str], goal: int, seed: int) -> None:
        self.path = path
        self.goal = goal
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        kept = json.loads(path.read_text()) if path.exists() else {"seed": seed}
        self.seed = kept["seed"]
        self.kernels: dict[str, dict[str, Any]] = kept.get("kernels", {})
        for name in names:
            empty = {"cases": 0, "screened": 0, "slices": 0, "seconds": 0.0}
            self.kernels.setdefault(name, {**empty, "findings": [], "errors": []})
        self.names = names

    def take(self) -> tuple[str, int, int] | None:
        """Return a kernel with the fewest cases, its next seed and what it lacks."""
        with self._lock:
            free = [
                n
                for n in self.names
                if n not in self._busy
                and self.kernels[n]["cases"] < self.goal
                and not self.kernels[n]["errors"]
            ]
            if not free:
                return None
            name = min(free, key=lambda n: self.kernels[n]["cases"])
            self._busy.add(name)
            kept = self.kernels[name]
            lacking = self.goal - kept["cases"]
            return name, self.seed + SEED_STEP * kept["slices"], lacking

    def give(self, name: str, shown: dict[str, Any], seconds: float) -> None:
        """Add what a slice showed, and keep all."""
        with self._lock:
            self._busy.discard(name)
            kept = self.kernels[name]
            kept["cases"] += shown["cases"]
            kept["screened"] = kept.get("screened", 0) + shown.get("screened", 0)
            kept["slices"] += 1
            kept["seconds"] += seconds
            kept["findings"] += shown["findings"]
            kept["errors"] += [e for e in [shown.get("error")] if e]
            kept["errors"] += [n for n in shown.get("notices", ()) if GIVEN_UP in n]
            text = json.dumps({"seed": self.seed, "kernels": self.kernels}, indent=1)
            fresh = self.path.with_suffix(".new")
            fresh.write_text(text + "\n")
            fresh.replace(self.path)

    def is_complete(self) -> bool:
        """Whether every kernel has had its cases."""
        return all(self.kernels[n]["cases"] >= self.goal for n in self.names)

    def table(self) -> str:
        """Return what was searched, a line for each kernel."""
        lines = [
            "| kernel | cases | of these in batches | cases/s | findings |",
            "|---|---|---|---|---|",
        ]
        for name in sorted(self.names):
            kept = self.kernels[name]
            rate = kept["cases"] / kept["seconds"] if kept["seconds"] else 0.0
            found = len(kept["findings"])
            cases, screened = kept["cases"], kept.get("screened", 0)
            lines.append(f"| {name} | {cases} | {screened} | {rate:.1f} | {found} |")
        cases = sum(self.kernels[n]["cases"] for n in self.names)
        screened = sum(self.kernels[n].get("screened", 0) for n in self.names)
        found = sum(len(self.kernels[n]["findings"]) for n in self.names)
        return "\n".join([*lines, f"| **all** | {cases} | {screened} |  | {found} |"])


def main() -> int:
    """Search until all cases are judged or the time is over."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parse.add_argument("--device", default="cuda", help="cuda, interpret or cpu")
    parse.add_argument("--cases", type=int, default=100_000, help="over all kernels")
    parse.add_argument("--seconds", type=float, default=500.0, help="of this call")
    parse.add_argument("--slice-cases", type=int, default=1000)
    parse.add_argument("--jobs", type=int, default=min(12, os.cpu_count() or 1))
    parse.add_argument("--seed", type=int, default=0)
    parse.add_argument("--state", type=Path, default=Path("soak.json"))
    parse.add_argument("--corpus", type=Path, default=None, help="for findings")
    parse.add_argument("--only", nargs="*", default=["*"], help="globs of kernels")
    parse.add_argument("--slice", help=argparse.SUPPRESS)
    options = parse.parse_args()
    if options.slice:
        print(json.dumps(searched(Slice(**json.loads(options.slice)))))
        return 0
    deadline = time.monotonic() + options.seconds
    entries = chosen(options.device, options.only)
    if not entries:
        print("no correct kernel of that name", file=sys.stderr)
        return 2
    modules = {e.witness.kernel: e.witness.module for e in entries}
    goal = -(-options.cases // len(modules))
    soak = Soak(options.state, list(modules), goal, options.seed)
    corpus = options.corpus or options.state.with_suffix(".corpus")

    def work() -> None:
        while (left := deadline - time.monotonic()) > LEAST_SECONDS:
            taken = soak.take()
            if taken is None:
                return
            name, seed, lacking = taken
            part = Slice(
                target=f"{PACKAGE}.{modules[name]}:{name}",
                device=options.device,
                seed=seed,
                cases=min(lacking, options.slice_cases),
                seconds=left - LEAST_SECONDS / 2,
                corpus=str(corpus.resolve()),
            )
            began = time.monotonic()
            shown = in_process(part)
            soak.give(name, shown, time.monotonic() - began)
            told = [*shown["findings"], shown.get("error", "")]
            for text in (*told, *shown.get("notices", ())):
                if text:
                    print(f"{name}, seed {seed}: {text}", flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        for future in [pool.submit(work) for _ in range(options.jobs)]:
            future.result()
    print(soak.table())
    kept = [soak.kernels[n] for n in soak.names]
    failed = any(k["findings"] or k["errors"] for k in kept)
    if not failed and not soak.is_complete():
        print("not complete: call it again with the same state")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
