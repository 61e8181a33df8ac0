"""What features share: kernels looked at one after the other, beside a search."""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from kfuzz.contracts.classes import CLASSES
from kfuzz.core.errors import BuildError
from kfuzz.core.event import (
    ContractTally,
    Event,
    KernelFinished,
    KernelProof,
    Notice,
    RunFinished,
    RunStarted,
)
from kfuzz.core.verdict import Verdict
from kfuzz.engine.search.preconditions import named_apart
from kfuzz.engine.search.record import Record
from kfuzz.engine.search.round import KernelSearch
from kfuzz.engine.search.schedule import outside_of
from kfuzz.engine.workers.jobs import Stopped
from kfuzz.engine.workers.runner import runner_of
from kfuzz.engine.workers.zygotes import Backend
from kfuzz.store.corpus import Corpus
from kfuzz.store.life import utc_now
from kfuzz.targets.load import LoadedKernel


def examined(
    load: Callable[[Backend], Sequence[LoadedKernel]],
    look: Callable[[KernelSearch, Corpus], Generator[Event, None, KernelProof | None]],
    *,
    root: Path,
    corpus: Path,
    device: str,
    stop: threading.Event,
    expired: Callable[[], bool],
) -> Iterator[Event]:
    """Look at kernels one after the other, where no cases are drawn at random.

    Args:
        load: returns the kernels.
        look: looks at one, and returns what is proved of it.
        root: the project.
        corpus: folder of findings.
        device: as in `RunConfig`.
        stop: set from outside to end the run cleanly.
        expired: whether the time is over.

    Yields:
        Events, ending with one `RunFinished`.

    Raises:
        KfuzzError: before the first event, on targets or settings that cannot be
            obeyed; later, if a kernel cannot be run at all.
    """
    began = time.monotonic()
    with closing(Backend(device)) as backend:
        loaded, held = load(backend), Corpus(corpus)
        held.require_writable()
        loaded = named_apart(loaded, held.homes, root)
        names = tuple(k.node_id for k in loaded)
        outside = outside_of(loaded)
        yield RunStarted(0, backend.name, names, utc_now(), outside=outside)
        for each in loaded:
            kernel = _examined_kernel(each, backend, root, expired)
            proof = None
            try:
                proof = yield from look(kernel, held)
            except Stopped:
                yield Notice(kernel.node_id, "the time was over before it was done")
            except BuildError as error:
                kernel.record.errors += 1
                yield Notice(kernel.node_id, f"given up: {error}")
            finally:
                kernel.runner.close()
            failed = {"K-LIV-01": ContractTally(Verdict.ERROR)}
            yield KernelFinished(
                kernel=kernel.node_id,
                operator=each.kernel.operator.name,
                cases=kernel.record.cases,
                cases_per_s=0.0,
                contracts=failed if kernel.record.errors else {},
                findings=tuple(kernel.findings.values()),
                paths=dict(kernel.paths),
                proof=proof,
            )
    yield RunFinished(time.monotonic() - began, stop.is_set(), 0, backend.name)


def _examined_kernel(
    loaded: LoadedKernel, backend: Backend, root: Path, expired: Callable[[], bool]
) -> KernelSearch:
    budget = backend.on.limits.sizes
    runner = runner_of(
        loaded, backend, root=root, expired=expired, budget=budget,
        quiet=lambda: kernel.quiet,
    )  # fmt: skip
    record = Record(frozenset(CLASSES), loaded.kernel.declaration.dtypes)
    kernel = KernelSearch(loaded, runner, budget, record)
    return kernel
