"""The parent's side: searches by peers and by kfuzz, each in processes of its own."""

import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Final, Self
from unittest import mock

from kfuzz.contracts.witnesses.roster import Entry
from kfuzz.core.budget import Budget as Limits
from kfuzz.core.codec import encode
from kfuzz.core.event import FindingSaved, KernelFinished, Notice, RunStarted
from kfuzz.core.finding import Target
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search import campaign
from kfuzz.engine.workers.zygotes import Backend
from kfuzz.execution.device.backends import BACKENDS, environment_for
from kfuzz.execution.processes.child import Zygote
from kfuzz.execution.processes.wire import ChildDied, ChildRaised, ChildTimeout
from kfuzz.targets.load import LoadedKernel, Source, load
from tests.benchmarks.peers.budgeted import LONGEST_MESSAGE, warm_up
from tests.benchmarks.peers.serving import SERVE
from tests.benchmarks.peers.subject import Budget, Found

ROOT: Final = Path(__file__).resolve().parents[3]
# For the last input of a search, and for imports.
GRACE_SECONDS: Final = 60.0
# What every search needs; the last is what assert_close imports when it is first
# called, which takes seconds.
PRELOAD: Final = (
    "torch",
    "triton",
    "hypothesis.extra.numpy",
    "torch.distributed.tensor",
)
# How a campaign begins to tell that it can do nothing more with a kernel.
GIVEN_UP: Final = "given up"


class Unavailable(Exception):
    """A peer is not installed, or does not import."""


class SearchError(Exception):
    """A search came to no result."""


class Peers:
    """Runs searches by peers, each in a child that the kernel may end.

    A child that a kernel ends shows the kernel to be wrong, as it would end a run of
    tests. Threads may search at once.
    """

    def __init__(self) -> None:
        self._zygotes: dict[str, Zygote] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="tried-")
        self._lock = threading.Lock()
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for zygote in self._zygotes.values():
            zygote.close()
        self._folder.cleanup()

    def search(
        self,
        peer: str,
        entry: Entry,
        budget: Budget,
        seed: int,
        *,
        file: Path | None = None,
    ) -> Found:
        """Search one kernel.

        Args:
            peer: its name, see `peers.load`.
            entry: the kernel.
            budget: of the search.
            seed: of the search.
            file: holds a kernel of the entry's name, to be searched in its place.

        Raises:
            Unavailable: if the peer cannot be imported.
            SearchError: if it raised where it calls no kernel, or did not return.
        """
        with self._lock:  # threads start one process, and one file each
            zygote = self._zygote(entry.backend)
            self._number += 1
            tried = Path(self._folder.name, f"{self._number}")
        tried.write_bytes(bytes(8))
        message = {
            "peer": peer,
            "witness": encode(entry.witness),
            "file": str(file) if file else "",
            "cases": budget.cases,
            "seconds": budget.seconds,
            "seed": seed,
            "tried": str(tried),
            "device": "cuda:0" if entry.backend == "cuda" else "cpu",
        }
        with zygote.fork() as child:
            began = time.perf_counter()
            try:
                reply = child.request(message, budget.seconds + GRACE_SECONDS)
            except ChildDied as died:
                cases = int.from_bytes(tried.read_bytes(), "little")
                how = died.signal_name or f"exit status {died.exit_code}"
                return Found(True, cases, time.perf_counter() - began, how)
            except (ChildRaised, ChildTimeout) as error:
                raise SearchError(
                    f"{peer} on {entry.witness.kernel}: {error}"
                ) from None
        if "unavailable" in reply:
            raise Unavailable(reply["unavailable"])
        return Found(**reply)

    def _zygote(self, backend: str) -> Zygote:
        if backend not in self._zygotes:
            self._zygotes[backend] = Zygote(
                SERVE,
                env=environment(backend),
                preload=PRELOAD,
                output=lambda _: None,  # stacks of what crashes
            )
        return self._zygotes[backend]


def environment(backend: str) -> dict[str, str]:
    """Return the environment of children, in which these modules can be imported."""
    env = environment_for(BACKENDS[backend], os.environ)
    path = filter(None, [str(ROOT), env.get("PYTHONPATH")])
    return {**env, "PYTHONPATH": os.pathsep.join(path)}


class Kfuzz:
    """Runs searches by campaigns of kfuzz's, all of them forking from one process.

    As for peers, no start of Python and torch counts in a search.
    """

    def __init__(self) -> None:
        self._backends: dict[str, _Kept] = {}

    def __enter__(self) -> Self:
        warm_up()
        return self

    def __exit__(self, *exception: object) -> None:
        for backend in self._backends.values():
            backend.end()

    def search(
        self, entry: Entry, budget: Budget, seed: int, *, file: Path | None = None
    ) -> Found:
        """Search one kernel up to the first finding.

        The time holds the fork of the child and the import of the kernel. The finding
        is not reduced, and counts unconfirmed.

        Args:
            entry: the kernel.
            budget: of the search.
            seed: of the search.
            file: holds a kernel of the entry's name, to be searched in its place.

        Raises:
            SearchError: if the campaign gave up.
        """
        if file is None:
            kernel = entry.load()
            loaded = LoadedKernel(
                kernel,
                Target("", kernel.name, kernel.module),
                Source(module=kernel.module, only=(kernel.name,)),
            )
        else:
            source = Source(file=file, only=(entry.witness.kernel,))
            loaded = load(source, root=file.parent)[0]
        backend = self._backend(entry.backend)
        with (
            mock.patch.object(campaign, "Backend", return_value=backend),
            tempfile.TemporaryDirectory(prefix="corpus-") as corpus,
        ):
            config = RunConfig(
                targets=(),
                root=ROOT,
                corpus=Path(corpus),
                seed=seed,
                budget=Limits(max_time=None, max_cases=budget.cases),
                device=entry.backend,
            )
            return _first_finding(config, loaded, budget.seconds)

    def _backend(self, name: str) -> "_Kept":
        if name not in self._backends:
            made = self._backends[name] = _Kept(name)
            made.fork().close()  # once it is there
        return self._backends[name]


class _Kept(Backend):
    """Where kernels run in one campaign after the other; what they print is dropped."""

    def _forward(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        """Leave the process there from which the next campaign's children come."""

    def end(self) -> None:
        super().close()


def _first_finding(config: RunConfig, loaded: LoadedKernel, seconds: float) -> Found:
    """Run a campaign up to its first finding, or until the time is up."""
    stop = threading.Event()
    timer = threading.Timer(seconds, stop.set)
    began, cases = time.perf_counter(), 0
    ended: float | None = None
    message = ""
    try:
        for event in campaign.run_kernels(config, [loaded], stop=stop):
            match event:
                case RunStarted():
                    began = time.perf_counter()
                    timer.start()
                case FindingSaved() if ended is None:
                    ended = time.perf_counter()
                    failure = event.finding.failure
                    message = f"{failure.contract}: {failure.message}"
                    stop.set()
                case Notice() if event.message.startswith(GIVEN_UP):
                    raise SearchError(f"kfuzz on {loaded.kernel.name}: {event.message}")
                case KernelFinished():
                    cases = event.cases
    finally:
        timer.cancel()
    took = (ended or time.perf_counter()) - began
    return Found(ended is not None, cases, took, message[:LONGEST_MESSAGE])
