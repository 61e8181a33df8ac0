"""A night on a fleet that is made up, with the real driver: its throughput and memory.

    python -m tests.benchmarks.fleet_simulation --workers 1000 --hours 10

Workers judge 28 cases a second each, tell of their progress every 15 s, and find what
their kernels have: every fifth kernel has two faults, which each unit finds again
unless it is told of them. Nodes of eight workers are lost at random, come back after
ten minutes, and what they had is done anew. The corpus is a real one.

The driver's time is what its process used, the simulation's own included. The command
fails if a finding was told twice, or one of the corpus was not told.
"""

import argparse
import resource
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Final

from kfuzz.core.budget import Budget
from kfuzz.core.event import (
    ContractTally,
    FindingSaved,
    KernelFinished,
    Notice,
    Progress,
    RunFinished,
)
from kfuzz.core.finding import Finding, Target
from kfuzz.core.verdict import Kind, Signature, State, Tried, Verdict
from kfuzz.engine.config import RunConfig
from kfuzz.fleet.driver import Driver
from kfuzz.fleet.work import Happened, Place, Search, Surveyed
from kfuzz.store.corpus import Corpus, Stored
from tests.helpers.fake_fleet import FakeFleet, FakeWorker, Script, survey_or
from tests.helpers.findings import finding

CASES_PER_SECOND: Final = 28.0
START_SECONDS: Final = 8.0
TOLD_EVERY: Final = 15.0
PER_NODE: Final = 8
FAULTY_EVERY: Final = 5
CONTRACTS: Final = ("C-PRC-01", "C-CMP-03")


def main() -> None:
    """Simulate, and print a row of the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--kernels", type=int, default=500)
    parser.add_argument("--hours", type=float, default=10.0)
    parser.add_argument("--losses", type=float, default=0.01, help="a node, an hour")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(_simulated(chosen, Path(folder)))


def _simulated(chosen: argparse.Namespace, folder: Path) -> int:
    names = [f"kernel_{n}" for n in range(chosen.kernels)]
    places = tuple(Place(f"k.py::{n}", f"k.py::{n}", n) for n in names)
    workers = {
        f"worker {n}": FakeWorker(f"gpu {n}", f"node {n // PER_NODE}")
        for n in range(chosen.workers)
    }
    fleet = FakeFleet(
        workers,
        survey_or(Surveyed("cuda", places), _campaign),
        node_losses=chosen.losses / 3600,
    )
    config = RunConfig(
        ("k.py",), folder, folder / "corpus", budget=Budget(chosen.hours * 3600)
    )
    told: Counter[str] = Counter()
    cases, notices, events = 0, 0, 0
    began, used = time.perf_counter(), time.process_time()
    for event in Driver(config, fleet, threading.Event()).events():
        events += 1
        match event:
            case FindingSaved(stage="done"):
                told[event.finding.id] += 1
            case KernelFinished():
                cases += event.cases
            case Notice():
                notices += 1
            case RunFinished():
                pass
    cpu = time.process_time() - used
    stored = {
        entry.finding.id
        for entry in Corpus(config.corpus).entries()
        if isinstance(entry, Stored)
    }
    twice = sum(n > 1 for n in told.values())
    units = len(fleet.assigned)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        "| workers | kernels | hours | cases | units | messages | events | nodes lost |"
        " driver s | of one processor | messages/s | MiB | findings | twice | lost |"
    )
    print("|" + "---|" * 15)
    print(
        f"| {chosen.workers} | {chosen.kernels} | {chosen.hours:g} | {cases:.3g} "
        f"| {units} | {fleet.told} | {events} | {fleet.lost_nodes} | {cpu:.0f} "
        f"| {100 * cpu / (chosen.hours * 3600):.2f} % | {fleet.told / cpu:.0f} "
        f"| {memory:.0f} | {len(told)} | {twice} | {len(stored ^ set(told))} |"
    )
    print(f"{time.perf_counter() - began:.0f} s; {notices} notices")
    return int(bool(twice or stored ^ set(told) or not told))


def _campaign(work: Search, worker: str) -> Script:
    """Yield what a unit's campaign tells."""
    chosen = work.config.chosen
    assert chosen is not None
    node, seconds = f"k.py::{chosen.name}", work.config.budget.max_time or 0.0
    yield START_SECONDS, Happened(_progress(node, 0.0))
    faults = CONTRACTS if int(chosen.name.split("_")[1]) % FAULTY_EVERY == 0 else ()
    found: list[Finding] = []
    for contract in faults:
        made = _found(chosen.name, contract, work.config.seed)
        if made.signature in work.config.seen:
            continue
        early = replace(made, explanation=None, state=State.NEW)
        for one, stage in ((early, "found"), (made, "done")):
            event = FindingSaved(node, one, "there", is_new=True, stage=stage)
            yield 2.0, Happened(event, one)
        found.append(made)
    passed = 0.0
    while passed < seconds:
        wait = min(TOLD_EVERY, seconds - passed)
        passed += wait
        yield wait, Happened(_progress(node, passed))
    cases = int(seconds * CASES_PER_SECOND)
    tallies = {
        c: ContractTally(Verdict.VIOLATES if found else Verdict.CONFORMS, cases)
        for c in CONTRACTS
    }
    yield 0.0, Happened(
        KernelFinished(
            node, "softmax", cases, CASES_PER_SECOND, tallies, strata=100,
            findings=tuple(found), tried=Tried(cases, 100, 10),
        )
    )  # fmt: skip


def _found(kernel: str, contract: str, seed: int) -> Finding:
    made = finding(kernel=kernel)
    first = replace(made.first, scalars={"dim": -1, "seed": seed % 1000})
    return replace(
        made,
        first=first,
        signature=Signature(kernel, contract, Kind.VALUE, "out"),
        target=Target("k.py", kernel),
    )


def _progress(node: str, seconds: float) -> Progress:
    return Progress(node, seconds, int(seconds * CASES_PER_SECOND), 0.5, 0, 0, 100)


if __name__ == "__main__":
    main()
