"""A long run whose children are killed: its memory has to stay flat.

    python -m tests.benchmarks.long_soak --seconds 1800 --jobs 2

Witnesses and their twins are searched by `kfuzz run`, on the CPU and then in Triton's
interpreter, while children are killed at random and the memory of the run is watched.
Every finding that was announced is looked for in the corpus, all of the corpus is read,
and no right kernel may be reported. `calamities.py` has what ends a run or its disk.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kfuzz.contracts.witnesses.roster import Entry, roster
from kfuzz.core.event import FindingSaved, KernelFinished
from kfuzz.core.finding import Finding
from kfuzz.core.statement import Role
from kfuzz.core.verdict import CHARGED
from kfuzz.report.text import read_events
from kfuzz.store.corpus import Corpus, Problem, ProblemKind, Stored

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = "kfuzz.contracts.witnesses"
# Few enough for each to have several turns: what is kept of a kernel is kept once.
KERNELS: Final = 40
# Between two kills of a child, in seconds.
KILLS: Final = (2.0, 6.0)
# For a run to end after its time: a finding under way, its reports.
GRACE_SECONDS: Final = 90.0
# The first part of a steady leg, in which the memory may still grow.
WARMING: Final = 1 / 3
GROWTH: Final = 1.15
# 3: what a kill of its child kept from being judged; 4: a busy machine on which no
# case was judged in time.
CODES: Final = (0, 1, 3, 4)


@dataclass
class Totals:
    """What all legs came to.

    Attributes:
        legs: how many legs there were.
        announced: findings announced.
        cases: cases judged, of runs that came to their end.
        kernels: kernels searched.
        kills: children killed.
        charged: findings of kernels that are right.
        faults: what must not be.
    """

    legs: int = 0
    announced: int = 0
    cases: int = 0
    kernels: set[str] = field(default_factory=set)
    kills: int = 0
    charged: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class Soak:
    """The legs, one after the other.

    Args:
        folder: of everything.
        jobs: as `--jobs`.
        chance: settles everything that is left to chance.
    """

    def __init__(self, folder: Path, *, jobs: int, chance: random.Random) -> None:
        self.folder, self.corpus, self.jobs = folder, folder / "corpus", jobs
        self.chance = chance
        self.totals = Totals()
        self.entries = [e for e in roster("cpu") if e.role is not Role.IMPOSTOR]

    def of(self, device: str) -> list[Entry]:
        """Return the witnesses that run on a device."""
        return [e for e in self.entries if e.backend == device]

    def leg(
        self, device: str, entries: list[Entry], seconds: float
    ) -> list[tuple[float, float]]:
        """Run one leg and look for what it announced.

        Returns:
            The run's resident memory in megabytes, with the seconds since its start.
        """
        number = self.totals.legs
        self.totals.legs += 1
        self.totals.kernels |= {e.witness.kernel for e in entries}
        told = self.folder / f"{number}.jsonl"
        errors = (self.folder / f"{number}.err").open("w+")
        targets = [f"{PACKAGE}.{e.witness.module}:{e.witness.kernel}" for e in entries]
        command = [
            sys.executable, "-m", "kfuzz", "run", *targets, "--device", device,
            "--max-time", f"{seconds:.0f}s", "--jobs", str(self.jobs), "-q",
            "--corpus", str(self.corpus), "--report", f"jsonl={told}",
        ]  # fmt: skip
        env = {**os.environ, "KFUZZ_CACHE": str(self.folder / "cache")}
        began = time.monotonic()
        # What it prints is in the report.
        run = subprocess.Popen(
            command, cwd=ROOT, env=env, text=True,
            stdout=subprocess.DEVNULL, stderr=errors,
        )  # fmt: skip
        memory = self._watch(run, began)
        try:
            run.wait(began + seconds + GRACE_SECONDS - time.monotonic())
        except subprocess.TimeoutExpired:
            self._fault(number, "it does not end")
            run.kill()
            run.wait()
        errors.seek(0)
        printed = errors.read()
        if run.returncode not in CODES or "Traceback" in printed:
            self._fault(number, f"exit code {run.returncode}: {printed[-2000:]}")
        self._look(number, told)
        return memory

    def _watch(
        self, run: "subprocess.Popen[str]", began: float
    ) -> list[tuple[float, float]]:
        """Kill children of a run at random, and sample its memory, until it ends."""
        memory = []
        due = began + self.chance.uniform(*KILLS)
        while run.poll() is None:
            time.sleep(0.5)
            now = time.monotonic()
            if (size := resident(run.pid)) is not None:
                memory.append((now - began, size))
            if now >= due:
                due = now + self.chance.uniform(*KILLS)
                children = grandchildren(run.pid)
                if children:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(self.chance.choice(children), signal.SIGKILL)
                        self.totals.kills += 1
        return memory

    def _look(self, number: int, told: Path) -> None:
        """Look for each announced finding in the corpus, and read all of that."""
        held: dict[str, list[Finding]] = {}
        corpus = Corpus(self.corpus)
        for problem in corpus.check():
            # What a killed writer left is cleared away by the next one.
            if problem.kind in (ProblemKind.DAMAGED, ProblemKind.FORMAT):
                self._fault(number, problem.what)
        for entry in corpus.entries():
            if isinstance(entry, Stored):
                held.setdefault(entry.finding.signature.kernel, []).append(
                    entry.finding
                )
            else:
                assert isinstance(entry, Problem)
        right = {e.witness.kernel for e in self.entries if e.role is Role.CONFORMING}
        lines = told.read_text().splitlines(keepends=True) if told.exists() else []
        events = list(read_events(lines, where=str(told)))
        saved = [e for e in events if isinstance(e, FindingSaved)]
        for event in events:
            if isinstance(event, KernelFinished):
                self.totals.cases += event.cases
        for i, event in enumerate(saved):
            finding = event.finding
            self.totals.announced += event.stage == "found"
            name = finding.signature.kernel
            # What it became is told too, and looked for by itself.
            if any(became(finding, later.finding) for later in saved[i + 1 :]):
                continue
            if not any(is_kept(finding, by) for by in held.get(name, ())):
                self._fault(number, f"lost: {finding.id}, told as {event.stage}")
            if name in right and finding.state in CHARGED:
                self.totals.charged.append(f"{finding.id}: {finding.failure.message}")

    def _fault(self, number: int, what: str) -> None:
        self.totals.faults.append(f"leg {number}: {what}")
        print(f"leg {number}: {what}", flush=True)


def became(announced: Finding, later: Finding) -> bool:
    """Whether what a run tells later may stand for what it announced."""
    same_kernel = announced.signature.kernel == later.signature.kernel
    return same_kernel and announced.signature.symptom == later.signature.symptom


def is_kept(announced: Finding, stored: Finding) -> bool:
    """Whether a stored finding is a later form of an announced one.

    It has its id, or its case as first found, or has become one with it: then it shows
    the same symptom, and its history has a change since.
    """
    if announced.id == stored.id or announced.first == stored.first:
        return True
    if announced.signature.symptom != stored.signature.symptom:
        return False
    return stored.history[-1].when >= announced.history[-1].when


def resident(pid: int) -> float | None:
    """Return a process's resident memory in megabytes, None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return None


def grandchildren(pid: int) -> list[int]:
    """Return the processes whose parents are children of a process."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
    children = {p for p, parent in parents.items() if parent == pid}
    return [p for p, parent in parents.items() if parent in children]


def slope(samples: list[tuple[float, float]]) -> float:
    """Return the growth of memory by least squares, in megabytes an hour."""
    times = [t for t, _ in samples]
    sizes = [s for _, s in samples]
    middle, mean = sum(times) / len(times), sum(sizes) / len(sizes)
    spread = sum((t - middle) ** 2 for t in times)
    rising = sum((t - middle) * (s - mean) for t, s in samples)
    return 3600 * rising / spread if spread else 0.0


def memory_line(name: str, samples: list[tuple[float, float]]) -> tuple[str, bool]:
    """Return what is said of a run's memory, and whether it stayed flat.

    Flat is a last quarter whose mean is at most `GROWTH` times that of the quarter
    after the first third, in which modules and caches are filled.
    """
    warm = [s for s in samples if s[0] >= WARMING * samples[-1][0]]
    quarter = max(len(warm) // 4, 1)
    early = sum(s for _, s in warm[:quarter]) / quarter
    late = sum(s for _, s in warm[-quarter:]) / quarter
    text = (
        f"{name}: resident MB first {samples[0][1]:.0f}, when warm {early:.0f}, last "
        f"{samples[-1][1]:.0f}, most {max(s for _, s in samples):.0f}; "
        f"{slope(warm):+.1f} MB an hour once warm, over {samples[-1][0]:.0f} s"
    )
    return text, late <= GROWTH * early


def main() -> int:
    """Run the legs; print what they came to."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parse.add_argument("--seconds", type=float, default=1800.0, help="of all legs")
    parse.add_argument("--jobs", type=int, default=2)
    parse.add_argument("--seed", type=int, default=0, help="of what goes wrong when")
    options = parse.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="kfuzz-soak-") as name:
        return _soak(Path(name), options, chance)


def _soak(folder: Path, options: argparse.Namespace, chance: random.Random) -> int:
    soak = Soak(folder, jobs=options.jobs, chance=chance)
    began = time.monotonic()
    flat = True
    said = []
    for device in ("cpu", "interpret"):
        entries = chance.sample(soak.of(device), KERNELS)
        samples = soak.leg(device, entries, options.seconds / 2)
        text, good = memory_line(f"{device}, {len(entries)} kernels", samples)
        said.append(text)
        flat = flat and good
    checked = _checked(soak.corpus)
    totals = soak.totals
    print(f"{time.monotonic() - began:.0f} s, {options.jobs} jobs")
    print(f"{len(totals.kernels)} kernels, {totals.cases} cases")
    print(f"{totals.kills} children killed")
    print(f"{totals.announced} findings announced; {checked}")
    print("\n".join(said))
    for text in totals.charged:
        print(f"a right kernel is reported: {text}")
    for text in totals.faults:
        print(f"fault: {text}")
    good = not totals.faults and not totals.charged and checked.endswith("clean")
    print("memory is flat" if flat else "memory grows")
    return 0 if good and flat else 1


def _checked(corpus: Path) -> str:
    """Return what `kfuzz corpus check` says once what was left is cleared away."""
    store = Corpus(corpus)
    store.repair()
    made = subprocess.run(
        [sys.executable, "-m", "kfuzz", "corpus", "check", "--corpus", str(corpus)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    stored = sum(isinstance(entry, Stored) for entry in store.entries())
    said = "clean" if not made.returncode else made.stdout[-2000:] + made.stderr
    return f"{stored} stored, corpus check: {said}"


if __name__ == "__main__":
    raise SystemExit(main())
