"""Children that search witnesses, and look at those alone that end their child."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any, Final

from kfuzz.contracts.witnesses.roster import Entry
from kfuzz.core.budget import Depth
from kfuzz.core.calibration import Outcome
from kfuzz.core.codec import decode, encode
from kfuzz.core.errors import KfuzzError
from kfuzz.core.finding import Target
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport
from kfuzz.engine.workers.backend import Backend
from kfuzz.engine.workers.canaries import keep_sound
from kfuzz.engine.workers.faults import charged, is_fault
from kfuzz.engine.workers.jobs import LOOK_SECONDS, Stopped
from kfuzz.engine.workers.opening import runner_of
from kfuzz.engine.workers.processors import processors
from kfuzz.execution.device.backends import backend_of, sharing
from kfuzz.execution.processes import Child, ChildDied, ChildRaised, ChildTimeout
from kfuzz.grade.witness_search import Found, outcome_of, search
from kfuzz.targets.load import LoadedKernel, Source, project_root

SERVE: Final = "kfuzz.grade.witness_search:serve"
# One witness, all its cases: what takes longer stalls.
WITNESS_SECONDS: Final = 300.0
# Jobs for each witness looked at alone meanwhile: what hangs mostly waits.
JOBS_PER_ALONE: Final = 3


class Pool:
    """Children that search witnesses one after the other, side by side.

    Args:
        devices: torch's names, "cpu" or "cuda:0": children are divided among them.
        cases: see `share`.
        seed: everything drawn depends on it.
        jobs: children; 0 for one for each processor, or for each GPU.

    Attributes:
        left_out: the devices that do not work, and why; known once it is open.
    """

    def __init__(
        self, devices: Sequence[str], *, cases: int, seed: int, jobs: int
    ) -> None:
        self._devices = tuple(devices)
        self._cases = cases
        self._seed = seed
        native = backend_of(self._devices[0])
        many = len(self._devices) if native.has.asynchronous else processors()
        self._jobs = jobs or many
        # Natively on the CPU, Triton is not to interpret: some classes would not bind.
        self._on = sharing(native.torch_type)
        self._backends: dict[str, Backend] = {}
        self._mine = threading.local()
        self.left_out: list[str] = []

    def __enter__(self) -> "Pool":
        for on in self._on:
            backend = Backend(",".join(self._devices) if on.numbered else on.name)
            # What witnesses print as they die is what they are there for.
            backend.quiet = True
            self._backends[on.name] = backend
            self.left_out += keep_sound(backend)
        return self

    def __exit__(self, *exception: object) -> None:
        for backend in self._backends.values():
            backend.close()

    def search(
        self, entries: Sequence[Entry], stop: threading.Event
    ) -> Iterator[Outcome]:
        """Yield what each witness shows, as it is known."""
        together = sorted((e for e in entries if not e.alone), key=lambda e: e.backend)
        alone = [e for e in entries if e.alone]
        apart = ThreadPoolExecutor(max(1, self._jobs // JOBS_PER_ALONE))
        with apart, ThreadPoolExecutor(self._jobs) as pool:
            futures: dict[Future[Outcome | None], Entry] = {
                apart.submit(self._alone, e, stop): e for e in alone
            }
            futures |= {pool.submit(self._ask, e, stop): e for e in together}
            try:
                for future in as_completed(futures):
                    # What ended its child is looked at again, in children of its own.
                    outcome = future.result() or self._alone(futures[future], stop)
                    if outcome is None or stop.is_set():
                        return
                    yield outcome
            finally:
                apart.shutdown(wait=False, cancel_futures=True)
                pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, entry: Entry, stop: threading.Event) -> Outcome | None:
        """Search a witness in this thread's child; None if that ends the child."""
        if stop.is_set():
            return None
        child: Child | None = getattr(self._mine, entry.backend, None)
        if child is None:
            child = self._child(entry)
            setattr(self._mine, entry.backend, child)
        try:
            child.send(self._message(entry))
            reply = _reply(child, stop)
        except (ChildDied, ChildTimeout):
            child.kill()
            setattr(self._mine, entry.backend, None)
            return None
        except ChildRaised as raised:
            problem = f"{raised.type}: {raised.message}"
            return outcome_of(entry, Found(problem=problem), functional=False)
        if reply["spent"]:
            child.kill()
            setattr(self._mine, entry.backend, None)
            return None
        return decode(Outcome, reply["outcome"], "outcome")

    def _child(self, entry: Entry) -> Child:
        """Return a child; those of a thread share a device."""
        backend = self._backends[entry.backend]
        if not hasattr(self._mine, "device"):
            self._mine.device = backend.turn()
        device = self._mine.device if backend.on.numbered else ""
        return backend.fork(lambda: True, device=device, serve=SERVE)

    def _message(self, entry: Entry) -> dict[str, Any]:
        return {
            "entry": encode(entry),
            "device": self._backends[entry.backend].device,
            "cases": self._cases,
            "seed": self._seed,
        }

    def _alone(self, entry: Entry, stop: threading.Event) -> Outcome | None:
        """Search a witness whose cases may end its child; None if it is stopped."""
        if stop.is_set():
            return None
        kernel = entry.load()
        backend = self._backends[entry.backend]
        module = kernel.module
        loaded = LoadedKernel(
            kernel, Target("", kernel.name, module),
            Source(module=module, only=(kernel.name,)),
        )  # fmt: skip
        runner = runner_of(
            loaded,
            backend,
            root=project_root(),
            expired=stop.is_set,
            budget=backend.on.limits.sizes,
            device=backend.turn(),
        )

        def judge(case: Case, depth: Depth) -> CaseReport:
            if stop.is_set():
                raise Stopped
            report = runner.judge(case, depth)
            located = runner.locate(case) if is_fault(report) else None
            return report if located is None else charged(report, located[1])

        functional = False
        try:
            found = search(entry, judge, cases=self._cases, seed=self._seed)
            with self._child(entry) as child:
                child.send({**self._message(entry), "cases": 0})
                reply = _reply(child, stop)
            functional = decode(Outcome, reply["outcome"], "outcome").functional
        except Stopped:
            return None
        except ChildTimeout:
            if stop.is_set():
                return None
            what = f"the functional test takes over {WITNESS_SECONDS:.0f} s"
            found = Found(problem=what)
        except KfuzzError as error:
            found = Found(problem=str(error))
        finally:
            runner.close()
        return outcome_of(entry, found, functional=functional)


def _reply(child: Child, stop: threading.Event) -> dict[str, Any]:
    """Return what a child answers, looking now and then whether all is over.

    Raises:
        ChildTimeout: if it takes too long, or the calibration is stopped.
    """
    deadline = time.monotonic() + WITNESS_SECONDS
    while True:
        try:
            return child.wait(LOOK_SECONDS)
        except ChildTimeout:
            if stop.is_set() or time.monotonic() >= deadline:
                raise
