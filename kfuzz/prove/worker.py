"""The process that proves: its Triton compiles, whatever the run's does.

Kernels are loaded as ever, their launches captured and nothing of them is run. It is
told targets and sends an outcome for each kernel, in order. Then it captures the
launches of cases that it is sent, and says which premise they break.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Final

from kfuzz.core.case_surroundings import config_of
from kfuzz.core.proof import KernelProof, Proven, ProvenProperty
from kfuzz.core.recipe import Case
from kfuzz.execution.launches.capture import NotCapturedError, capture
from kfuzz.execution.launches.process import Process, end, served
from kfuzz.prove.groups import Watch
from kfuzz.prove.observing import Observed
from kfuzz.prove.outcome import Outcome
from kfuzz.prove.proving import KernelProver
from kfuzz.prove.tasks import Enough, Failed, Seen, Task, Watched
from kfuzz.targets.load import LoadedKernel, load_all

_OBSERVER: Final = "kfuzz.prove.observer"
_OBSERVE_SECONDS: Final = 20.0


class _Enough(Exception):
    """No further kernel is to be proved."""


class Worker:
    """Proves kernels, and holds launches against the premises of what it has proved.

    Args:
        connection: to its parent.
        task: what to prove.
    """

    def __init__(self, connection: Connection, task: Task) -> None:
        self._connection, self._task = connection, task
        self._watches: dict[str, tuple[LoadedKernel, Watch]] = {}

    def prove(self, loaded: Sequence[LoadedKernel]) -> None:
        """Prove kernels in order, and send what comes of each."""
        observer = Observer(self._task) if self._task.observe else None
        try:
            for kernel in loaded:
                outcome = self._proved(kernel, observer)
                if outcome.watch is not None:
                    self._watches[kernel.node_id] = kernel, outcome.watch
                outcome.watch = None  # it stays here
                self._connection.send((kernel.node_id, outcome))
        except _Enough:
            pass
        finally:
            if observer is not None:
                observer.close()
        self._connection.send(None)

    def serve(self) -> None:
        """Hold launches against premises as long as there is a parent."""
        while True:
            with suppress(_Enough):
                self._hear()

    def pause(self) -> None:
        """Do what the parent has asked for meanwhile.

        Raises:
            _Enough: nothing more is to be proved.
        """
        while self._connection.poll(0):
            self._hear()

    def _hear(self) -> None:
        message = self._connection.recv()
        if isinstance(message, Enough):
            raise _Enough
        assert isinstance(message, Watched)
        broken = _broken(message, self._watches)
        self._connection.send(Seen(message.kernel, len(message.cases), broken))

    def _proved(self, loaded: LoadedKernel, observer: "Observer | None") -> Outcome:
        """Return what is proved; an error of kfuzz's own proves nothing."""
        observe = None if observer is None else observer.of(loaded.node_id)
        try:
            prover = KernelProver(
                loaded.kernel, loaded.node_id, seconds=self._task.seconds,
                observe=observe, pause=self.pause,
            )  # fmt: skip
            return prover.run()
        except _Enough:
            raise
        except Exception as error:
            why = f"an error of kfuzz's own: {type(error).__name__}: {error}"
            found = ProvenProperty("all properties", Proven.OPEN, why)
            return Outcome(KernelProof(loaded.node_id, (found,)))


def main() -> None:
    """Prove what the first message names, and send what comes of it."""
    connection = served()
    task: Task = connection.recv()
    try:
        loaded = load_all(task.targets, root=task.root)
    except Exception as error:
        connection.send(Failed(str(error)))
        return
    worker = Worker(connection, task)
    worker.prove(loaded)
    worker.serve()


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


def _broken(asked: Watched, watches: dict[str, tuple[LoadedKernel, Watch]]) -> str:
    if asked.kernel not in watches:
        return ""
    loaded, watch = watches[asked.kernel]
    for case in asked.cases:
        try:
            launches = capture(loaded.kernel, case, config=config_of(case)).launches
        except NotCapturedError:
            continue  # the kernel rejects it
        if text := watch.broken_by(launches):
            return text
    return ""


if __name__ == "__main__":
    with suppress(EOFError, OSError):
        main()
    end()
