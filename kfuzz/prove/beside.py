"""Proofs beside a search: counterexamples come first, proofs into the verdicts."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from kfuzz.core.budget import Scale
from kfuzz.core.event import Event
from kfuzz.core.proof import KernelProof
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.proofs import Keep, Proofs
from kfuzz.engine.search.round import KernelSearch, Round
from kfuzz.prove.examined import Examined
from kfuzz.prove.solver import installed
from kfuzz.prove.tasks import Proving, Task

_NEVER: Final = threading.Event()
SHARE: Final = 0.25
"""Of a run's time so much of the processor's is for proofs at most."""
SECONDS: Final = 20.0
"""Of the processor's time, for each kernel at most."""
LEAST_SECONDS: Final = 20.0
"""Runs that end sooner are not proved unless that is asked for: to begin costs 5 s."""
# A kernel's counterexamples are waited for so long before its first case, and its proof
# after its last one; of a limited time for less.
_WAIT_SECONDS: Final = 8.0
_WAIT_SHARE: Final = 0.05
# Of a run's time a kernel's counterexamples get so much.
_EXAMPLES_SHARE: Final = 0.1


class BesideSearch:
    """The proofs of one run, see `kfuzz.engine.search.proofs.Proofs`.

    Args:
        config: the run.
    """

    def __init__(self, config: RunConfig) -> None:
        self._limit = limit = config.budget.max_time
        seconds = SECONDS if limit is None else min(SECONDS, SHARE * limit)
        task = Task(config.targets, config.root, seconds)
        self._proving = Proving(task, idle=True)
        self._examined: dict[str, Examined] = {}
        # When waiting for proofs ends; None while the search goes on.
        self._until: float | None = None

    def examples(
        self, kernel: KernelSearch, this_round: Callable[[float], Round], keep: Keep, *,
        end: float,
    ) -> Iterator[Event]:  # fmt: skip
        """Judge a kernel's counterexamples, once they are there."""
        until = now = time.monotonic()
        if self._limit is not None:  # the search goes on meanwhile
            end = min(end, now + _EXAMPLES_SHARE * self._limit)
        elif not kernel.rounds:
            until += _WAIT_SECONDS
        self._proving.watch(kernel.node_id, list(kernel.tried.values()))
        if kernel.node_id in self._examined:
            return
        outcome = self._proving.outcome(kernel.node_id, stop=_NEVER, until=until)
        if outcome is None:
            return
        examined = self._examined[kernel.node_id] = Examined(kernel)
        most = kernel.budget.elements
        few = [e for e in outcome.counterexamples if e.case.elements <= most]
        yield from examined.run(few, lambda: this_round(end), keep)

    def proof(self, kernel: KernelSearch) -> KernelProof | None:
        """Return what is proved of a kernel; None where nothing is known of it."""
        if self._until is None:
            most = math.inf if self._limit is None else _WAIT_SHARE * self._limit
            self._until = time.monotonic() + min(_WAIT_SECONDS, most)
            self._proving.enough()
        outcome = self._proving.outcome(kernel.node_id, stop=_NEVER, until=0.0)
        if outcome is None:
            return None
        proof = outcome.proof
        if examined := self._examined.get(kernel.node_id):
            proof = examined.applied(proof)
        cases = list(kernel.tried.values())
        self._proving.watch(kernel.node_id, cases)
        seen, broken = self._proving.watched(kernel.node_id, until=self._until)
        proof = replace(proof, watched=seen, unwatched=len(cases) - seen)
        return proof.without(broken) if broken else proof

    def close(self) -> None:
        """End the processes."""
        self._proving.close()


def prover(config: RunConfig) -> Proofs | None:
    """Return the proofs of a run, none where it asks for none, or nothing can prove.

    By default a run is proved that only its time ends: of others the seed alone says
    which cases there are.
    """
    usual = config.scale is Scale.USUAL and config.isolate != "none"
    wanted, budget = config.prove, config.budget
    if wanted is None:
        timed = budget.max_time is not None and budget.max_cases is None
        wanted = timed and (budget.max_time or 0.0) >= LEAST_SECONDS
    if not (wanted and usual and installed()):
        return None
    return BesideSearch(config)
