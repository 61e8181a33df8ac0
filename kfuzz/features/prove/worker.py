"""The process that proves: its Triton compiles, whatever the run's does.

Kernels are loaded as ever, their launches captured and nothing of them is run. It gets
targets and sends an outcome for each kernel, in order. Then it captures the launches of
cases that it is sent, and answers which premise they break.

Where its Triton interprets it is the process that observes: it runs cases, and sends
every access.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Final

from kfuzz.core.errors import HarnessError
from kfuzz.core.recipe import Case, config_of
from kfuzz.execution.interpreter.watch import interpreting
from kfuzz.execution.launches.building import beside
from kfuzz.execution.launches.capture import NotCapturedError, capture
from kfuzz.features.prove.observing import ENTRY, Observed, Outcome, Task, observe
from kfuzz.features.prove.proving import KernelProver, nothing
from kfuzz.features.prove.sampling import Watch
from kfuzz.targets.load import LoadedKernel, load_all

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
        observer = Observer(self._task)
        try:
            for kernel in loaded:
                outcome = self._proved(kernel, observer.of(kernel.node_id))
                if outcome.watch is not None:
                    self._watches[kernel.node_id] = kernel, outcome.watch
                outcome.watch = None  # it stays here
                self._connection.send((kernel.node_id, outcome))
        except _Enough:
            pass
        finally:
            observer.close()
        self._connection.send(None)

    def serve(self) -> None:
        """Hold launches against premises as long as there is a parent."""
        while True:
            with suppress(_Enough):
                self._receive()

    def pause(self) -> None:
        """Do what the parent has asked for meanwhile.

        Raises:
            _Enough: nothing more is to be proved.
        """
        while self._connection.poll(0):
            self._receive()

    def _receive(self) -> None:
        message = self._connection.recv()
        if message is None:
            raise _Enough
        kernel, cases = message
        self._connection.send((kernel, len(cases), self._broken(kernel, cases)))

    def _broken(self, kernel: str, cases: Sequence[Case]) -> str:
        if kernel not in self._watches:
            return ""
        loaded, watch = self._watches[kernel]
        for case in cases:
            try:
                launches = capture(loaded.kernel, case, config=config_of(case)).launches
            except NotCapturedError:
                continue  # the kernel rejects it
            if text := watch.broken_by(launches):
                return text
        return ""

    def _proved(
        self, loaded: LoadedKernel, observe: Callable[[Case], list[Observed] | None]
    ) -> Outcome:
        """Return what is proved; an error of kfuzz's own proves nothing."""
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
            return nothing(loaded.node_id, why)


class Observer:
    """The process that runs kernels in the interpreter, begun when it is needed."""

    def __init__(self, task: Task) -> None:
        self._process = beside(ENTRY, interpret=True)
        self._process.send(task)
        self._lost = False
        self.close = self._process.close

    def of(self, node_id: str) -> Callable[[Case], list[Observed] | None]:
        """Return what runs cases of a kernel; it returns None where that fails."""

        def observe(case: Case) -> list[Observed] | None:
            if not self._lost:
                try:
                    reply = self._process.ask((node_id, case), _OBSERVE_SECONDS)
                    made: list[Observed] | None = reply
                    return made
                except HarnessError:
                    self._lost = True
            return None

        return observe


def serve(connection: Connection) -> None:
    """Prove, or observe, what the first message names, and send what comes of it."""
    task: Task = connection.recv()
    try:
        loaded = load_all(task.targets, root=task.root)
    except Exception as error:
        connection.send(str(error))
        return
    if not interpreting():
        worker = Worker(connection, task)
        worker.prove(loaded)
        worker.serve()
    kernels = {each.node_id: each.kernel for each in loaded}
    while True:
        node_id, case = connection.recv()
        try:
            made = observe(kernels[node_id], case)
        except Exception:  # whatever a kernel raises: it rejects the case
            made = None
        connection.send(made)
