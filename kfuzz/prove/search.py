"""Proving kernels one after the other; counterexamples are judged like any case."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kfuzz.contracts.classes import CLASSES
from kfuzz.core.errors import BuildError
from kfuzz.core.event import (
    Event,
    KernelFinished,
    Notice,
    RunFinished,
    RunStarted,
)
from kfuzz.core.proof import KernelProof, Proven, ProvenProperty
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport
from kfuzz.engine.search.found import first_finding, taken_to_minimum
from kfuzz.engine.search.preconditions import named_apart
from kfuzz.engine.search.progress import outside_notices, outside_of
from kfuzz.engine.search.record import Record
from kfuzz.engine.search.round import KernelSearch, Round
from kfuzz.engine.workers.backend import Backend
from kfuzz.engine.workers.jobs import Stopped
from kfuzz.engine.workers.opening import runner_of
from kfuzz.prove import solver
from kfuzz.prove.examined import Examined
from kfuzz.prove.tasks import Outcome, Proving, Task
from kfuzz.store.corpus import Corpus
from kfuzz.store.life import utc_now
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
        solver.required()
        task, began, self._stop = self._task, time.monotonic(), stop
        backend = Backend(self._device)
        proving: Proving | None = None
        try:
            loaded = load_all(task.targets, root=task.root)
            corpus = Corpus(self._corpus)
            corpus.require_writable()
            proving = Proving(task)
            loaded = named_apart(loaded, corpus.homes, task.root)
            names = tuple(k.node_id for k in loaded)
            outside = outside_of(loaded)
            yield RunStarted(0, backend.name, names, utc_now(), outside=outside)
            yield from outside_notices(outside)
            for kernel in loaded:
                outcome = proving.outcome(kernel.node_id, stop=stop)
                if outcome is None:
                    why = proving.failed or "it was interrupted"
                    outcome = nothing(kernel.node_id, why)
                yield from self._settled(kernel, outcome, backend, corpus)
        finally:
            if proving is not None:
                proving.close()
            backend.close()
        elapsed = time.monotonic() - began
        yield RunFinished(elapsed, stop.is_set(), 0, backend.name)

    def _settled(
        self, loaded: LoadedKernel, outcome: Outcome, backend: Backend, corpus: Corpus
    ) -> Iterator[Event]:
        """Run the counterexamples of a kernel, and yield what it came to."""
        runner = runner_of(
            loaded, backend, root=self._task.root, expired=self._stop.is_set,
            budget=backend.on.limits.sizes, quiet=lambda: kernel.quiet,
        )  # fmt: skip
        record = Record(frozenset(CLASSES), loaded.kernel.declaration.dtypes)
        kernel = KernelSearch(loaded, runner, backend.on.limits.sizes, record)
        proof = outcome.proof
        try:
            examined = Examined(kernel)
            yield from examined.run(
                outcome.counterexamples,
                lambda: Round(kernel, stop=self._stop, deadline=float("inf")),
                lambda kernel, case, report: self._kept(kernel, case, report, corpus),
            )
            proof = examined.applied(proof)
        except (Stopped, BuildError) as error:
            yield Notice(kernel.node_id, f"counterexamples were not run: {error}")
        finally:
            runner.close()
        self.proofs.append(proof)
        yield KernelFinished(
            kernel=kernel.node_id,
            operator=loaded.kernel.operator.name,
            cases=record.cases,
            cases_per_s=0.0,
            contracts={},
            findings=tuple(kernel.findings.values()),
            paths=dict(kernel.paths),
            proof=proof,
        )

    def _kept(
        self, kernel: KernelSearch, case: Case, report: CaseReport, corpus: Corpus
    ) -> Iterator[Event]:
        finding = first_finding(kernel, case, report, seed=0)
        yield from taken_to_minimum(
            kernel, finding, corpus, seconds=lambda: REDUCE_SECONDS,
            stopped=self._stop.is_set,
        )  # fmt: skip


def nothing(node_id: str, why: str) -> Outcome:
    """Return the outcome of a kernel of which nothing is known."""
    from kfuzz.prove.properties import Property

    found = tuple(
        ProvenProperty(p, Proven.OPEN, why) for p in Property if p is not Property.HINTS
    )
    return Outcome(KernelProof(node_id, found))
