"""Runs the whole pipeline on witnesses."""

import math
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from kfuzz.contracts.witnesses.roster import everywhere
from kfuzz.contracts.witnesses.witness import Witness
from kfuzz.core.budget import Budget
from kfuzz.core.event import Event, FindingSaved, Progress
from kfuzz.core.finding import Finding
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.campaign import run_kernels
from kfuzz.targets.load import LoadedKernel, load_all

PACKAGE = "kfuzz.contracts.witnesses"
ROOT = Path(__file__).parents[2]


def hunt(witness: Witness, corpus: Path, *, seed: int, cases: int) -> list[Finding]:
    """Search one witness until a finding under its class is at its minimum.

    A number of cases, no clock: what is found depends on the seed alone.

    Returns:
        The findings at their minimum; the one under its class is the last.
    """
    stop = threading.Event()
    config = RunConfig(
        targets=(),
        root=ROOT,
        corpus=corpus,
        seed=seed,
        budget=Budget(max_time=None, max_cases=cases),
        device="cpu" if witness.backends == ("cpu",) else "auto",
    )
    found: list[Finding] = []
    for event in run_kernels(config, _load([witness.kernel]), stop=stop):
        if isinstance(event, FindingSaved) and event.stage == "done":
            found.append(event.finding)
            if event.finding.signature.contract == witness.contract:
                stop.set()
    return found


def cases_until_found(kernel: str, corpus: Path, *, seed: int, cases: int) -> float:
    """Return how many cases a kernel of the tests' helpers took to its first finding.

    Args:
        kernel: "module:name" below `tests.helpers`.
        corpus: where the finding goes.
        seed: of the search.
        cases: most of them.

    Returns:
        Infinity if none was found.
    """
    stop, tried = threading.Event(), 0
    config = RunConfig(
        targets=(),
        root=ROOT,
        corpus=corpus,
        seed=seed,
        budget=Budget(max_time=None, max_cases=cases),
        device="cpu",
    )
    loaded, is_found = load_all((f"tests.helpers.{kernel}",), root=ROOT), False
    for event in run_kernels(config, loaded, stop=stop):
        match event:
            case Progress() if not is_found:
                tried = event.cases
            case FindingSaved():
                is_found = True
                stop.set()
    return tried if is_found else math.inf


def search(
    names: Sequence[str], corpus: Path, *, seed: int, cases: int, device: str
) -> list[Event]:
    """Run a number of cases on each of several witnesses."""
    kernels = _load(names)
    return search_kernels(kernels, corpus, seed=seed, cases=cases, device=device)


def search_kernels(
    kernels: list[LoadedKernel], corpus: Path, *, seed: int, cases: int, device: str
) -> list[Event]:
    """Run a number of cases on each of several kernels."""
    config = RunConfig(
        targets=(),
        root=ROOT,
        corpus=corpus,
        seed=seed,
        budget=Budget(max_time=None, max_cases=cases),
        device=device,
    )
    return list(run_kernels(config, kernels, stop=threading.Event()))


def targets_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return witnesses as targets; a module may lie in a folder of its own."""
    return tuple(f"{PACKAGE}.{everywhere()[name].module}:{name}" for name in names)


def _load(names: Sequence[str]) -> list[LoadedKernel]:
    return load_all(targets_of(names), root=ROOT)
