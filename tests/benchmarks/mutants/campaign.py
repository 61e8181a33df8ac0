"""The campaign: every chosen mutant by every tool, kept in a file after each step."""

import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from kfuzz.execution.device.backends import resolve
from tests.benchmarks.mutants.asking import (
    COMPARISON,
    KFUZZ,
    LONGER,
    START,
    Step,
    begin,
    done,
)
from tests.benchmarks.mutants.mutator import Mutant, written
from tests.benchmarks.mutants.specimens import SPECIMENS, Specimen
from tests.benchmarks.peers.subject import Budget
from tests.benchmarks.peers.versions import machine

# For what is under way when no more is begun.
LAST_SECONDS: Final = 5.0
# How often the file is written at most.
KEPT_EVERY: Final = 3.0
LEAST_COMPARED: Final = 100
"""Fewer small cases say nothing of what a mutant is."""


@dataclass(frozen=True)
class Settings:
    """What every mutant gets.

    Attributes:
        device: "interpret" or "cuda".
        tools: names, in the order in which they search.
        budget: of one search.
        compared: most small cases on which one that kfuzz leaves is compared.
        comparing: seconds that this may take; one that had less time, and few cases
            in it, is made anew.
        seed: of every search.
        longer: seconds of a second search by kfuzz of what it leaves; 0 for none.
    """

    device: str
    tools: tuple[str, ...]
    budget: Budget
    compared: int
    comparing: float
    seed: int
    longer: float = 0.0

    @staticmethod
    def of(path: Path) -> "Settings":
        """Return those under which a state was made, with all tools that searched."""
        stored = json.loads(path.read_text())
        searches = (unit["searches"] for unit in stored["units"].values())
        tools = dict.fromkeys(tool for each in searches for tool in each)
        return Settings(
            stored["device"], tuple(tools), Budget(**stored["budget"]),
            stored["compared"], stored["comparing"], stored["seed"],
        )  # fmt: skip


class State:
    """What is known of each mutant and each correct kernel, in a file.

    Attributes:
        units: by id: "digest" of its file, "start", "searches" by tool, "comparison".

    Args:
        path: the file.
        settings: of this call; what was learnt under others is not taken.

    Raises:
        ValueError: if the file holds what was learnt under other settings.
    """

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self.head: dict[str, Any] = {
            "device": settings.device,
            "budget": asdict(settings.budget),
            "compared": settings.compared,
            "comparing": settings.comparing,
            "seed": settings.seed,
            "machine": machine(),
            "seconds": 0.0,
        }
        self.units: dict[str, dict[str, Any]] = {}
        if path.exists():
            stored = json.loads(path.read_text())
            self.units = stored.pop("units")
            for key in ("device", "budget", "compared", "seed"):
                if stored[key] != self.head[key]:
                    raise ValueError(f"{path}: {key} was {stored[key]!r}")
            self.head = {**stored, "comparing": settings.comparing}

    def unit(self, id: str, digest: str) -> dict[str, Any]:
        """Return what is known of a unit: nothing, if its file was another one."""
        known = self.units.get(id)
        if known is None or known["digest"] != digest:
            known = self.units[id] = {"digest": digest, "searches": {}}
        return known

    def keep(self) -> None:
        """Write the file."""
        fresh = self.path.with_suffix(".new")
        text = json.dumps({**self.head, "units": self.units}, indent=1)
        fresh.write_text(text + "\n")
        fresh.replace(self.path)


def next_step(known: dict[str, Any], settings: Settings, *, correct: bool) -> str:
    """Return what is to be done next with a unit, "" if nothing is.

    Args:
        known: of the unit, as in `State`.
        settings: of this call.
        correct: whether it is a correct kernel: these start, and are not compared.
    """
    if not correct:
        if START not in known:
            return START
        if known[START].get("raised"):
            return ""
    for tool in settings.tools:
        if tool not in known["searches"]:
            return tool
    searched = known["searches"].get(KFUZZ, {"found": True})
    if correct or searched.get("found") or known.get(LONGER, {}).get("found"):
        return ""
    if settings.longer and LONGER not in known:
        return LONGER
    return "" if _is_compared(known.get(COMPARISON), settings) else COMPARISON


def _is_compared(made: dict[str, Any] | None, settings: Settings) -> bool:
    """Whether a comparison need not be made, or made anew with more time."""
    if made is None:
        return False
    if made.get("charged") or made.get("cases", 0) >= LEAST_COMPARED:
        return True
    return bool(made.get("limit", 0.0) >= settings.comparing)


def run(
    chosen: Sequence[Mutant],
    settings: Settings,
    state: State,
    *,
    seconds: float,
    jobs: int,
) -> bool:
    """Do what is left to be done, side by side, until the time is over.

    Returns:
        Whether nothing is left.
    """
    began = time.monotonic()
    used = {m.specimen.name for m in chosen}
    correct = [s for s in SPECIMENS if s.name in used]
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        written(folder, chosen)
        for each in (*correct, *chosen):  # what another source made is forgotten
            state.unit(_id(each), each.digest)
        context = multiprocessing.get_context("spawn")
        places = context.Queue()
        backend, devices = resolve(settings.device)
        for number in range(jobs):
            device = devices[number % len(devices)]
            places.put(backend.only([device], os.environ))
        with ProcessPoolExecutor(
            jobs, context, initializer=begin, initargs=(places,)
        ) as pool:
            left = _work(
                [*correct, *chosen],
                settings,
                state,
                folder,
                pool,
                began + seconds,
                jobs,
            )
    state.head["seconds"] += time.monotonic() - began
    state.keep()
    return not left


Unit = Specimen | Mutant


def _id(unit: Unit) -> str:
    return unit.name if isinstance(unit, Specimen) else unit.id


def _work(
    units: Sequence[Unit],
    settings: Settings,
    state: State,
    folder: Path,
    pool: ProcessPoolExecutor,
    deadline: float,
    jobs: int,
) -> bool:
    """Hand out steps and take what comes back; return whether anything is left."""
    under_way: dict[Future[dict[str, Any]], Step] = {}
    kept = time.monotonic()
    left = False
    while True:
        busy = {step.unit for step in under_way.values()}
        for step in _steps(units, settings, state, folder, busy):
            if len(under_way) >= jobs:
                break
            if time.monotonic() + step.seconds + LAST_SECONDS > deadline:
                left = True
                continue
            busy.add(step.unit)
            under_way[pool.submit(done, step)] = step
        if not under_way:
            return left
        for future in wait(under_way, return_when=FIRST_COMPLETED).done:
            step = under_way.pop(future)
            _take(state.units[step.unit], step, future.result())
        if time.monotonic() - kept > KEPT_EVERY:
            state.keep()
            kept = time.monotonic()


def _steps(
    units: Sequence[Unit],
    settings: Settings,
    state: State,
    folder: Path,
    busy: set[str],
) -> Iterator[Step]:
    """Yield the next step of each unit that is not busy."""
    seconds = {COMPARISON: settings.comparing, LONGER: settings.longer}
    for unit in units:
        id = _id(unit)
        if id in busy:
            continue
        correct = isinstance(unit, Specimen)
        known = state.units[id]
        what = next_step(known, settings, correct=correct)
        if what:
            name = unit.name if isinstance(unit, Specimen) else unit.specimen.name
            file = f"{name}.py" if isinstance(unit, Specimen) else unit.file
            yield Step(
                unit=id, what=what, kernel=name, file=folder / file,
                correct=folder / f"{name}.py", backend=settings.device,
                seconds=seconds.get(what, settings.budget.seconds),
                cases=settings.budget.cases, compared=settings.compared,
                seed=settings.seed,
            )  # fmt: skip


def _take(known: dict[str, Any], step: Step, made: dict[str, Any]) -> None:
    """Add what a step showed to what is known of its unit."""
    if step.what in (START, LONGER, COMPARISON):
        known[step.what] = {**made, "limit": step.seconds}
    else:
        known["searches"][step.what] = made
    told = next(filter(None, map(made.get, ("error", "charged", "message"))), "")
    verdict = "wrong" if made.get("found") or made.get("charged") else "-"
    print(
        f"{step.unit}: {step.what}: {verdict} after {made.get('cases', 0)} cases, "
        f"{made.get('seconds', 0.0):.1f} s {told}"[:240],
        file=sys.stderr,
        flush=True,
    )
