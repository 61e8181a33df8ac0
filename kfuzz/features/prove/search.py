"""Proving kernels one after the other; counterexamples are judged like any case."""

import math
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from kfuzz.core.budget import Scale
from kfuzz.core.errors import BuildError
from kfuzz.core.event import Event, KernelProof, Notice
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import ATTRIBUTED, CaseReport
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.campaign import Keep
from kfuzz.engine.search.found import first_finding, taken_to_minimum
from kfuzz.engine.search.round import KernelSearch, Round
from kfuzz.engine.workers.jobs import Stopped
from kfuzz.engine.workers.zygotes import Backend
from kfuzz.features.examining import examined
from kfuzz.features.prove.observing import Proving, Task
from kfuzz.features.prove.properties import installed, required
from kfuzz.features.prove.proving import Examined, nothing
from kfuzz.store.corpus import Corpus, Stored
from kfuzz.store.files import keep_proof
from kfuzz.targets.load import LoadedKernel, load_all

# For one finding to be reduced and explained.
REDUCE_SECONDS: Final = 30.0


class ProofRun:
    """Proves kernels, and runs their counterexamples.

    Args:
        task: what to prove.
        corpus: folder of findings.
        device: where counterexamples run.
    """

    def __init__(self, task: Task, corpus: Path, device: str) -> None:
        self.proofs: list[KernelProof] = []
        self._task, self._corpus, self._device = task, corpus, device
        self._stop = threading.Event()

    def events(self, *, stop: threading.Event) -> Iterator[Event]:
        """Prove, and yield what happens, ending with one `RunFinished`.

        Raises:
            BackendError: if no solver is installed, or the device is missing.
            KfuzzError: on targets that cannot be obeyed.
        """
        required()
        task, self._stop = self._task, stop
        with ExitStack() as opened:

            def load(backend: Backend) -> list[LoadedKernel]:
                loaded = load_all(task.targets, root=task.root)
                # Now: what a file does as it is imported is not done twice at a time.
                self._proving = opened.enter_context(closing(Proving(task)))
                return loaded

            yield from examined(
                load, self._settled,
                root=task.root, corpus=self._corpus, device=self._device,
                stop=stop, expired=stop.is_set,
            )  # fmt: skip

    def _settled(
        self, kernel: KernelSearch, corpus: Corpus
    ) -> Generator[Event, None, KernelProof]:
        """Run the counterexamples of a kernel, and return what it came to."""
        outcome = self._proving.outcome(kernel.node_id, stop=self._stop)
        if outcome is None:
            why = self._proving.failed or "it was interrupted"
            outcome = nothing(kernel.node_id, why)
        proof, judged = outcome.proof, Examined(kernel)
        try:
            yield from judged.run(
                outcome.counterexamples,
                lambda: Round(kernel, stop=self._stop, deadline=float("inf")),
                lambda kernel, case, report: self._kept(kernel, case, report, corpus),
            )
            proof = judged.applied(proof)
        except (Stopped, BuildError) as error:
            yield Notice(kernel.node_id, f"counterexamples were not run: {error}")
        until = time.monotonic() + _WAIT_SECONDS
        proof = _beside(self._proving, proof, kernel, corpus, until)
        self.proofs.append(proof)
        keep_proof(corpus.root, proof)
        return proof

    def _kept(
        self, kernel: KernelSearch, case: Case, report: CaseReport, corpus: Corpus
    ) -> Iterator[Event]:
        finding = first_finding(kernel, case, report, seed=0)
        yield from taken_to_minimum(
            kernel, finding, corpus, seconds=lambda: REDUCE_SECONDS,
            stopped=self._stop.is_set,
        )  # fmt: skip


def proof_of(
    target: str, node_id: str, root: Path, stop: threading.Event
) -> KernelProof | None:
    """Return what is proved of one kernel; None where nothing can be.

    Args:
        target: the kernel, as on the command line.
        node_id: its name in a run.
        root: the project.
        stop: set to end it.
    """
    if not installed():
        return None
    with closing(Proving(Task((target,), root, SECONDS))) as proving:
        outcome = proving.outcome(node_id, stop=stop)
        return None if outcome is None else outcome.proof


# Proofs beside a search: counterexamples come first, proofs into the verdicts.

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


_LATE: Final = "it came too late: `kfuzz prove`, or a longer --max-time, waits"


def _beside(
    proving: Proving, proof: KernelProof, kernel: KernelSearch, corpus: Corpus,
    until: float,
) -> KernelProof:  # fmt: skip
    """Return what is left of a proof beside the cases of a search, and all findings."""
    found = [
        entry.finding
        for entry in corpus.entries(kernel.loaded.kernel.name)
        if isinstance(entry, Stored)
        and entry.finding.target.node_id == kernel.node_id
        and entry.finding.state in ATTRIBUTED
    ]
    # Those stored earlier are of launches that the proof has to hold of, too.
    cases = [*kernel.tried.values(), *(finding.case for finding in found)]
    proving.watch(kernel.node_id, cases)
    seen, broken = proving.watched(kernel.node_id, until=until)
    proof = replace(proof, watched=seen, unwatched=len(cases) - seen)
    proof = proof.without(broken) if broken else proof
    return proof.beside([*found, *kernel.findings.values()])


class BesideSearch:
    """The proofs of one run, made beside its search.

    Args:
        config: the run.
    """

    def __init__(self, config: RunConfig) -> None:
        self._corpus = Corpus(config.corpus)
        self._wanted = bool(config.prove)
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
        judged = self._examined[kernel.node_id] = Examined(kernel)
        most = kernel.budget.elements
        few = [e for e in outcome.counterexamples if e.case.elements <= most]
        yield from judged.run(few, lambda: this_round(end), keep)

    def proof(self, kernel: KernelSearch, stop: threading.Event) -> KernelProof | None:
        """Return what is proved of a kernel; None where nothing is known of it.

        One that was asked for says why, and is waited for where no time limits a run.
        """
        waits = self._wanted and self._limit is None
        if self._until is None:
            most = math.inf if self._limit is None else _WAIT_SHARE * self._limit
            self._until = time.monotonic() + min(_WAIT_SECONDS, most)
            if not waits:
                self._proving.enough()
        until = time.monotonic() + 2 * SECONDS if waits else 0.0
        outcome = self._proving.outcome(kernel.node_id, stop=stop, until=until)
        if waits:
            self._until = time.monotonic() + _WAIT_SECONDS
        if outcome is None:
            why = self._proving.failed or _LATE
            return nothing(kernel.node_id, why).proof if self._wanted else None
        proof = outcome.proof
        if judged := self._examined.get(kernel.node_id):
            proof = judged.applied(proof)
        proof = _beside(self._proving, proof, kernel, self._corpus, self._until)
        keep_proof(self._corpus.root, proof)
        return proof

    def close(self) -> None:
        """End the processes."""
        self._proving.close()


def prover(config: RunConfig) -> "BesideSearch | SimpleNamespace | None":
    """Return the proofs of a run, none where it asks for none, or nothing can prove.

    By default a run is proved that only its time ends: of others the seed alone says
    which cases there are.
    """
    wanted, budget = config.prove, config.budget
    if wanted is None:
        timed = budget.max_time is not None and budget.max_cases is None
        wanted = timed and (budget.max_time or 0.0) >= LEAST_SECONDS
    unfit = {
        "a run of large sizes makes no proofs": config.scale is not Scale.USUAL,
        "--isolate none leaves it no process of its own": config.isolate == "none",
        "the solver z3 is not installed: pip install 'kfuzz[prove]'": not installed(),
    }
    why = next((text for text, is_so in unfit.items() if is_so), "")
    if wanted and not why:
        return BesideSearch(config)
    if not config.prove:
        return None
    return SimpleNamespace(
        examples=lambda *_, **__: (), close=lambda: None,
        proof=lambda kernel, stop: nothing(kernel.node_id, why).proof,
    )  # fmt: skip
