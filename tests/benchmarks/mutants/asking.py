"""One process that searches and compares mutants, each in a child of its own."""

import atexit
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any, Final

from kfuzz.contracts.witnesses.roster import Entry
from kfuzz.core.statement import Role
from kfuzz.execution.processes.child import Zygote
from kfuzz.execution.processes.wire import ChildDied, ChildRaised
from tests.benchmarks.mutants.in_child import COMPARE, STARTS, Comparison
from tests.benchmarks.mutants.specimens import SPECIMENS
from tests.benchmarks.peers import PEERS
from tests.benchmarks.peers.asking import (
    GRACE_SECONDS,
    PRELOAD,
    Kfuzz,
    Peers,
    Unavailable,
    environment,
)
from tests.benchmarks.peers.subject import Budget

KFUZZ: Final = "kfuzz"
START: Final = "start"
LONGER: Final = "longer"
COMPARISON: Final = "comparison"
# How it is told that a tool is not there.
NOT_RUN: Final = "not run"
USUAL: Final = (
    KFUZZ, "five random inputs", "Hypothesis, within 100", "Hypothesis, any floats",
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One thing to be done with one kernel.

    Attributes:
        unit: id of the mutant, or name of the correct kernel.
        what: START, a tool, LONGER (kfuzz once more), or COMPARISON.
        kernel: name of the witness.
        file: holds the kernel.
        correct: holds the correct kernel.
        backend: where it runs, "interpret" or "cuda".
        seconds: most of it.
        cases: most inputs of a search; None for no limit.
        compared: most cases of a comparison, whose `seconds` are its own.
        seed: of a search.
    """

    unit: str
    what: str
    kernel: str
    file: Path
    correct: Path
    backend: str
    seconds: float
    cases: int | None
    compared: int
    seed: int


class _Doing:
    """What a process keeps from one step to the next."""

    def __init__(self) -> None:
        self.peers = Peers().__enter__()
        self.kfuzz = Kfuzz().__enter__()
        self._comparing: dict[str, Zygote] = {}

    def close(self) -> None:
        self.peers.__exit__()
        self.kfuzz.__exit__()
        for zygote in self._comparing.values():
            zygote.close()

    def comparing(self, backend: str) -> Zygote:
        if backend not in self._comparing:
            self._comparing[backend] = Zygote(
                COMPARE, env=environment(backend), preload=PRELOAD,
                output=lambda _: None,
            )  # fmt: skip
        return self._comparing[backend]


_doing: list[_Doing] = []


def begin(places: "Queue[dict[str, str]]") -> None:
    """Prepare this process for steps.

    Args:
        places: holds the variables under which it sees its device alone.
    """
    os.environ.update(places.get())
    _doing.append(_Doing())
    atexit.register(_doing[0].close)


def done(step: Step) -> dict[str, Any]:
    """Do a step; return what came of it, or an "error"."""
    try:
        if step.what == COMPARISON:
            return _compared(_doing[0].comparing(step.backend), step)
        return _searched(_doing[0], step)
    except Unavailable as why:
        return {"error": f"{NOT_RUN}: {why}"}
    except Exception as error:  # one kernel's, and no other's
        return {"error": f"{type(error).__name__}: {error}"}


def _searched(doing: _Doing, step: Step) -> dict[str, Any]:
    """Search a kernel, or see whether it starts."""
    witness = next(s.witness for s in SPECIMENS if s.name == step.kernel)
    entry = Entry(witness, Role.VIOLATING, step.backend)
    budget = Budget(step.seconds, step.cases)
    if step.what in (KFUZZ, LONGER):
        return asdict(doing.kfuzz.search(entry, budget, step.seed, file=step.file))
    peer = STARTS if step.what == START else PEERS[step.what]
    found = doing.peers.search(peer, entry, budget, step.seed, file=step.file)
    made = asdict(found)
    if step.what == START:  # what ends its process does start
        made["raised"] = "" if made.pop("found") else found.message
    return made


def _ended(ended: ChildDied | ChildRaised, tried: Path) -> dict[str, Any]:
    """Return what a comparison shows that a mutant ended.

    Raises:
        ChildRaised: if it was no fault of the device's.
    """
    if isinstance(ended, ChildDied):
        how = ended.signal_name or f"exit status {ended.exit_code}"
    elif ended.type == "AcceleratorError":
        how = ended.message.partition("\n")[0]
    else:
        raise ended
    cases = int.from_bytes(tried.read_bytes(), "little")
    return {"cases": cases, "differing": 0, "charged": f"K-LIV-01: {how}"}


def _compared(zygote: Zygote, step: Step) -> dict[str, Any]:
    """Compare a mutant with its correct kernel, see `in_child.compare`."""
    with tempfile.NamedTemporaryFile(prefix="compared-") as tried:
        tried.write(bytes(8))
        tried.flush()
        asked = Comparison(
            step.kernel, str(step.file), str(step.correct), step.backend,
            step.seconds, step.compared, tried.name,
        )  # fmt: skip
        began = time.monotonic()
        with zygote.fork() as child:
            try:
                made = child.request(asdict(asked), step.seconds + GRACE_SECONDS)
            except (ChildDied, ChildRaised) as ended:
                made = _ended(ended, Path(tried.name))
    return {**made, "seconds": time.monotonic() - began}
