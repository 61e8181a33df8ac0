"""Proofs beside a search: counterexamples come first, proofs into the verdicts."""

import threading
from collections.abc import Callable, Iterator

from kfuzz.core.budget import Scale
from kfuzz.core.event import Event
from kfuzz.core.proof import KernelProof
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.proofs import Keep, Proofs
from kfuzz.engine.search.round import KernelSearch, Round
from kfuzz.prove.examined import Examined
from kfuzz.prove.solver import installed
from kfuzz.prove.tasks import Proving, Task

# For each kernel: a search has other things to do with the processors.
_SECONDS = 20.0
_NEVER = threading.Event()


class BesideSearch:
    """The proofs of one run, see `kfuzz.engine.search.proofs.Proofs`.

    Args:
        config: the run.
    """

    def __init__(self, config: RunConfig) -> None:
        self._proving = Proving(Task(config.targets, config.root, _SECONDS))
        self._examined: dict[str, Examined] = {}

    def examples(
        self, kernel: KernelSearch, this_round: Callable[[], Round], keep: Keep, *,
        until: float,
    ) -> Iterator[Event]:  # fmt: skip
        """Judge a kernel's counterexamples, once they are there."""
        if kernel.node_id in self._examined:
            return
        outcome = self._proving.outcome(kernel.node_id, stop=_NEVER, until=until)
        if outcome is None:
            return
        examined = self._examined[kernel.node_id] = Examined(kernel)
        yield from examined.run(outcome.counterexamples, this_round, keep)

    def proof(self, kernel: KernelSearch, *, until: float) -> KernelProof | None:
        """Return what is proved of a kernel; None where nothing is known of it."""
        outcome = self._proving.outcome(kernel.node_id, stop=_NEVER, until=until)
        if outcome is None:
            return None
        proof = outcome.proof
        if examined := self._examined.get(kernel.node_id):
            proof = examined.applied(proof)
        broken = self._proving.broken(kernel.node_id, kernel.tried)
        return proof.without(broken) if broken else proof

    def close(self) -> None:
        """End the processes."""
        self._proving.close()


def prover(config: RunConfig) -> Proofs | None:
    """Return the proofs of a run; None where it asks for none, or nothing can prove."""
    usual = config.scale is Scale.USUAL and config.isolate != "none"
    if not (config.prove and usual and installed()):
        return None
    return BesideSearch(config)
