"""The process that proves: its Triton compiles, whatever the run's does.

Kernels are loaded as ever, their launches captured and nothing of them is run. It is
told targets and sends an outcome for each kernel, in order. Then it captures the
launches of cases that it is sent, and says which premise they break.
"""

import contextlib
from collections.abc import Callable
from typing import Final

from kfuzz.core.proof import KernelProof, Proven, ProvenProperty
from kfuzz.core.recipe import Case
from kfuzz.prove.capture import NotCapturedError, capture
from kfuzz.prove.groups import Watch
from kfuzz.prove.observing import Observed
from kfuzz.prove.processes import Process, end, served
from kfuzz.prove.proving import KernelProver, Outcome
from kfuzz.prove.tasks import Failed, Task, Watched
from kfuzz.targets.load import LoadedKernel, load_all

_OBSERVER: Final = "kfuzz.prove.observer"
_OBSERVE_SECONDS: Final = 20.0


def main() -> None:
    """Prove what the first message names, and send what comes of it."""
    connection = served()
    task: Task = connection.recv()
    try:
        loaded = load_all(task.targets, root=task.root)
    except Exception as error:
        connection.send(Failed(str(error)))
        return
    observer = Observer(task) if task.observe else None
    watches: dict[str, tuple[LoadedKernel, Watch]] = {}
    for kernel in loaded:
        outcome = _proved(kernel, task.seconds, observer)
        if outcome.watch is not None:
            watches[kernel.node_id] = kernel, outcome.watch
        outcome.watch = None  # it stays here
        connection.send((kernel.node_id, outcome))
    connection.send(None)
    if observer is not None:
        observer.close()
    while True:
        asked: Watched = connection.recv()
        connection.send((Watched(asked.kernel, ()), _broken(asked, watches)))


class Observer:
    """The process that runs kernels in the interpreter, begun when it is needed."""

    def __init__(self, task: Task) -> None:
        self._process = Process(_OBSERVER, interpret=True)
        self._process.send(task)
        self._lost = False

    def of(self, node_id: str) -> Callable[[Case], list[Observed] | None]:
        """Return what runs cases of a kernel; it returns None where that fails."""

        def observe(case: Case) -> list[Observed] | None:
            if self._lost:
                return None
            self._process.send((node_id, case))
            try:
                if not self._process.ready(_OBSERVE_SECONDS):
                    self._lost = True
                    return None
                made: list[Observed] | None = self._process.receive()
            except (EOFError, OSError):
                self._lost = True
                return None
            return made

        return observe

    def close(self) -> None:
        """End it."""
        self._process.close()


def _proved(loaded: LoadedKernel, seconds: float, observer: Observer | None) -> Outcome:
    """Return what is proved of a kernel; an error of kfuzz's own proves nothing."""
    observe = None if observer is None else observer.of(loaded.node_id)
    try:
        prover = KernelProver(
            loaded.kernel, loaded.node_id, seconds=seconds, observe=observe
        )
        return prover.run()
    except Exception as error:
        why = f"an error of kfuzz's own: {type(error).__name__}: {error}"
        found = ProvenProperty("all properties", Proven.OPEN, why)
        return Outcome(KernelProof(loaded.node_id, (found,)))


def _broken(asked: Watched, watches: dict[str, tuple[LoadedKernel, Watch]]) -> str:
    if asked.kernel not in watches:
        return ""
    loaded, watch = watches[asked.kernel]
    for case in asked.cases:
        try:
            launches = capture(loaded.kernel, case, config=case.config or 0).launches
        except NotCapturedError:
            continue  # the kernel rejects it
        if text := watch.broken_by(launches):
            return text
    return ""


if __name__ == "__main__":
    with contextlib.suppress(EOFError, OSError):
        main()
    end()
