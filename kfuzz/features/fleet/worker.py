"""Units of a run, and the tasks of a cluster of Ray that do them.

A unit is a campaign of one kernel by one block of seeds, in the processes that one has.
All machines of a run have the same versions, and trust one another as Ray's do. Ray is
imported once a run asks for it.
"""

import contextlib
import functools
import hashlib
import math
import os
import platform
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from kfuzz.cli.run import events, portable
from kfuzz.core.budget import Scale
from kfuzz.core.errors import (
    BackendError,
    BindingError,
    DecodeError,
    HarnessError,
    NothingToRunError,
    UsageError,
)
from kfuzz.core.event import (
    Event,
    FindingReplayed,
    FindingSaved,
    Progress,
)
from kfuzz.core.features import HOME, with_home
from kfuzz.core.finding import ATEN, Finding, Target, version_of
from kfuzz.engine.config import RunConfig
from kfuzz.engine.workers.jobs import PROCESSORS_EACH, SHARING, processors
from kfuzz.execution.device.backends import (
    AUTO,
    environment_for,
    guess,
    resolve,
)
from kfuzz.execution.processes.child import OwnProcess
from kfuzz.store.corpus import Corpus
from kfuzz.store.entry import read_entry

CALIBRATION: Final = "calibration.json"
"""The file of a unit's own folder that `RunConfig.calibration` then names."""


@dataclass(frozen=True)
class Survey:
    """Which kernels do the targets of a run have? Reports `Surveyed`.

    Attributes:
        config: of the run.
        homes: where the corpus says that kernels live, by name: see `named_apart`.
    """

    config: RunConfig
    homes: Mapping[str, tuple[Target, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """One kernel of a run, as a unit gets it.

    Attributes:
        node_id: its one name in the run.
        target: what loads it, seen from the project.
        name: the name that it is bound to.
        alias: the name that its findings bear; "" for its own.
    """

    node_id: str
    target: str
    name: str
    alias: str = ""


@dataclass(frozen=True)
class Surveyed:
    """What a survey found.

    Attributes:
        backend: the name of what kernels run on.
        places: the kernels.
        outside: as `RunStarted` has it.
    """

    backend: str
    places: tuple[Place, ...]
    outside: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Search:
    """A campaign of one kernel; reports its events, each with the finding it speaks of.

    Attributes:
        config: of the campaign; its folders are the worker's.
        stored: what the corpus holds of the kernel that bears on it.
        calibration: the content of the file that the run names.
    """

    config: RunConfig
    stored: tuple[Finding, ...] = ()
    calibration: bytes | None = None


Work = Survey | Search

# What a unit reports besides `Surveyed`, and its events with their findings.


class Begun(NamedTuple):
    """It begins, the first time or once more."""


class Alive(NamedTuple):
    """Its worker is there."""


class Rejected(NamedTuple):
    """Its worker does no unit of this run, and why: it has other versions."""

    why: str


class Ended(NamedTuple):
    """It has ended; what kept it from its end, None for nothing."""

    error: Exception | None


# What must be the same on all machines of a run: else they judge differently.

_PACKAGES = ("torch", "triton", "numpy", "hypothesis")


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions here by name; that of kfuzz is a hash of its source."""
    made = {"kfuzz": _source_hash(), "python": platform.python_version()}
    return made | {name: version_of(name) or "none" for name in _PACKAGES}


def _source_hash() -> str:
    digest = hashlib.sha256()
    home = Path(HOME, "kfuzz")
    # The folders behind links, which `rglob` does not enter.
    for folder in (home, home / "contracts", home / "strategies"):
        for path in sorted(folder.resolve().rglob("*.py")):
            digest.update(path.relative_to(folder.resolve()).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


# A worker: it does one unit, in processes of its own, and passes on what it reports.

_ENTRY: Final = "kfuzz.features.fleet.worker:answer"
BEAT_SECONDS: Final = 2.0
"""Between two reports of a unit that has nothing to report but its progress."""
# What is wrong with what was asked, wherever it is done.
_FINAL: Final = (UsageError, BindingError, NothingToRunError, DecodeError)

Put = Callable[[list[Any]], bool]
"""Takes what a unit reports; returns whether it is to end soon."""


@dataclass(frozen=True)
class Worker:
    """Does units.

    Attributes:
        root: the project; "" for the working folder, into which it was copied.
        versions: those of the driver.
    """

    root: str
    versions: Mapping[str, str] = field(default_factory=versions)

    def do(self, work: Work, put: Put) -> Exception | None:
        """Do a unit; return what is wrong with what was asked.

        A worker that is rejected keeps its place: else Ray would give it to the next
        unit.

        Raises:
            Exception: whatever else kept it from its end.
        """
        put([Begun()])
        if rejected := self._differing():
            put([rejected])
            while not put([]):
                time.sleep(BEAT_SECONDS)
            return None
        try:
            with _beating(put) as stop:
                if isinstance(work, Survey):
                    put([self._listed(work)])
                else:
                    self._searched(work, put, stop)
        except _FINAL as error:
            return error
        except KeyboardInterrupt:  # told to stop while it imported
            pass
        return None

    def _differing(self) -> Rejected | None:
        own = versions()
        differing = ", ".join(
            f"{name} {own.get(name, 'none')} (here {wanted})"
            for name, wanted in self.versions.items()
            if own.get(name) != wanted
        )
        where = f"a worker on {socket.gethostname()}"
        return Rejected(f"{where}: {differing}") if differing else None

    def _searched(self, work: Search, put: Put, stop: threading.Event) -> None:
        """Pass on what a search reports."""
        progressed = 0.0
        with (
            TemporaryDirectory(prefix="kfuzz-unit-", ignore_cleanup_errors=True) as own,
            contextlib.chdir(self._folder),
        ):
            for event in events(_placed(work, Path.cwd(), Path(own)), stop=stop):
                if isinstance(event, Progress):
                    if time.monotonic() - progressed < BEAT_SECONDS:
                        continue
                    progressed = time.monotonic()
                if put([_happened(event)]):
                    stop.set()

    def _listed(self, work: Survey) -> Surveyed:
        """Return what a process of its own answers."""
        with OwnProcess(
            _ENTRY, os.environ, start_new_session=True, cwd=self._folder
        ) as process:
            try:
                answer = process.ask(work, math.inf)
            except HarnessError as error:
                what = f"the process of a unit {error.what}"
                raise HarnessError(what) from None
        if isinstance(answer, Exception):
            raise answer
        made: Surveyed = answer
        return made

    @property
    def _folder(self) -> str:
        return self.root or os.getcwd()


@contextlib.contextmanager
def _beating(put: Put) -> Iterator[threading.Event]:
    """Report now and then that the worker is there; yield what ends its unit."""
    stop, ended = threading.Event(), threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT_SECONDS):
            try:
                over = put([Alive()])
            except Exception:  # nobody takes what comes any more
                over = True
            if over:
                stop.set()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        ended.set()
        thread.join()


def answer(connection: Connection) -> None:
    """List the kernels of targets, as the one message asks.

    Users' files are not for the worker's own process.
    """
    work = connection.recv()
    try:
        made = _survey(work, Path.cwd())
    except Exception as error:
        made = portable(error)
    connection.send(made)


def _survey(work: Survey, root: Path) -> Surveyed:
    config = work.config
    backend = guess(config.device)
    if backend is not None:  # Triton reads its variables as it is imported
        os.environ.update(environment_for(backend, os.environ))
    from kfuzz.engine.search.preconditions import named_apart
    from kfuzz.engine.search.schedule import outside_of
    from kfuzz.targets.load import load_all

    on, _ = resolve(config.device)
    loaded = named_apart(
        load_all(config.targets, root=root), lambda name: work.homes.get(name, ()), root
    )
    places = []
    for kernel in loaded:
        source, name = kernel.source, kernel.kernel.name
        if source.file is not None:
            target = f"{os.path.relpath(source.file, root)}::{name}"
        elif source.module.startswith(ATEN):
            target = source.module  # names its overloads together
        else:
            target = f"{source.module}:{name}"
        places.append(Place(kernel.node_id, target, name, kernel.alias))
    return Surveyed(on.name, tuple(places), outside_of(loaded))


def _placed(work: Search, root: Path, folder: Path) -> RunConfig:
    """Return the campaign's configuration, with folders of this machine."""
    corpus = Corpus(folder / "corpus")
    for finding in work.stored:
        corpus.save(finding)
    calibration = None
    if work.calibration is not None:
        calibration = folder / CALIBRATION
        calibration.write_bytes(work.calibration)
    return replace(
        work.config, root=root, corpus=corpus.root, calibration=calibration,
        started=None,
    )  # fmt: skip


def _happened(event: Any) -> tuple[Any, Finding | None]:
    """Return an event with the finding that it speaks of, as stored."""
    match event:
        case FindingSaved():
            return event, event.finding
        case FindingReplayed(path=path) if event.id:
            return event, read_entry(Path(path))
    return event, None


# A cluster of Ray: it chooses where a unit runs, and does those again that are lost.

ON: Final = "ray"
ADDRESS: Final = "RAY_ADDRESS"
"""Ray's own variable: the cluster that is meant where none is named."""
HINT: Final = "pip install 'kfuzz[ray]'"
RETRIES: Final = 2
"""How often a unit is done again before it is given up."""
_GROWTH_SECONDS: Final = 5.0
"""Between two looks whether the cluster has changed."""
STORE_BYTES: Final = 80_000_000
"""Of shared memory of a cluster that is begun here; messages are small."""
# What no worker needs of a project.
_EXCLUDED: Final = (".git", ".venv", "venv", "node_modules", "__pycache__", "corpus")


class Mailbox:
    """An actor that holds what units report until the driver takes it."""

    def __init__(self) -> None:
        self._items: list[tuple[int, Any]] = []
        self._ending = False

    def put(self, number: int, items: list[Any]) -> bool:
        """Take what a unit reports; return whether units are to end soon."""
        self._items += [(number, item) for item in items]
        return self._ending

    def take(self) -> list[tuple[int, Any]]:
        """Return what was reported since it was asked last."""
        taken, self._items = self._items, []
        return taken

    def end(self) -> None:
        """Have units end soon."""
        self._ending = True


def _unit(worker: Worker, number: int, work: Work, mailbox: Any) -> Exception | None:
    """Do a unit as a task of Ray; see `Worker.do`."""
    import ray

    try:
        return worker.do(work, lambda items: ray.get(mailbox.put.remote(number, items)))
    except Exception as error:
        raise portable(error) from None


class Cluster:
    """A cluster of Ray, begun here where none is named.

    Args:
        on: what `--on` says: an address, or none for that of RAY_ADDRESS, or for a
            cluster of this machine's own.
        config: of the run.

    Raises:
        UsageError: if Ray is not installed, or the cluster does not answer.
        BackendError: if it has no GPU, and one is asked for.
    """

    def __init__(self, on: str, config: RunConfig) -> None:
        address = on if "://" in on else os.environ.get(ADDRESS, "")
        if address.startswith("ray://"):
            _show_token()
        try:
            import ray
        except ImportError:
            what = "needs Ray, which is not installed"
            raise UsageError(what, where=f"--on {ON}", fix=HINT) from None
        self._ray: Any = ray
        self._own = not address or address == "local"
        self.title = f"--on {ON}" + (f" ({address})" if address else "")
        self._jobs = config.jobs
        self._sharing = 1 if config.scale is Scale.LARGE else SHARING
        self._running: dict[Any, int] = {}
        self._looked = float("-inf")
        self._connect(address, config.root)
        try:
            self._gpu = self._wants_gpus(config.device)
            self._worker = Worker(str(config.root) if self._own else "")
            # Beside the driver's end of the cluster: with that the run ends anyway.
            head = {"node:__internal_head__": 0.001}
            actor = ray.remote(Mailbox).options(num_cpus=0, resources=head)
            self._mailbox: Any = actor.remote()
        except BaseException:
            self.close()
            raise

    def now(self) -> float:
        """Return the time in seconds, from any origin."""
        return time.monotonic()

    def room(self) -> int:
        """Return how many units the cluster can do at once."""
        if self.now() - self._looked > _GROWTH_SECONDS:
            self._looked = self.now()
            has = self._ray.cluster_resources()
            cpus, gpus = has.get("CPU", 0.0), has.get("GPU", 0.0)
            self._options: dict[str, Any] = {
                "num_cpus": 1, "max_retries": RETRIES, "retry_exceptions": True,
            }  # fmt: skip
            self._room = int(cpus)
            if self._gpu:
                ample = int(cpus // (PROCESSORS_EACH * max(gpus, 1)))
                each = max(min(ample, self._sharing), 1)
                self._room = min(int(gpus) * each, int(cpus))
                self._options["num_gpus"] = 1 / each
            if self._own:  # on the same disk
                path = with_home(os.environ)["PYTHONPATH"]
                self._options["runtime_env"] = {"env_vars": {"PYTHONPATH": path}}
        return min(self._room, self._jobs or self._room)

    def submit(self, number: int, work: Work) -> None:
        """Have a unit done."""
        task = self._ray.remote(_unit).options(**self._options)
        made = task.remote(self._worker, number, work, self._mailbox)
        self._running[made] = number

    def receive(self, seconds: float) -> list[tuple[int, Any]]:
        """Return what units report, `Ended` last, waiting for so long.

        Raises:
            BackendError: if the cluster is lost.
        """
        ended: list[Any] = []
        if not self._running:
            time.sleep(seconds)
        else:
            every = list(self._running)
            ended, _ = self._ray.wait(every, num_returns=len(every), timeout=seconds)
        # A unit has ended once all that it reports is in the mailbox.
        items: list[tuple[int, Any]]
        try:
            items = self._ray.get(self._mailbox.take.remote())
        except Exception as lost:
            what = f"the cluster answers no more: {_reason(lost)}"
            raise BackendError(what, where=self.title) from None
        for each in ended:
            number = self._running.pop(each)
            try:
                wrong = self._ray.get(each)
            except Exception as raised:
                wrong = HarnessError(_reason(raised))
            items.append((number, Ended(wrong)))
        return items

    def end(self) -> None:
        """Have all units end soon."""
        self._mailbox.end.remote()

    def close(self) -> None:
        """End all units, and the cluster where it is this run's own."""
        for each in self._running:
            with contextlib.suppress(Exception):  # it may be gone
                self._ray.cancel(each, force=True)
        with contextlib.suppress(Exception):
            self._ray.shutdown()

    def _connect(self, address: str, root: Path) -> None:
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
        if self._own:
            # A cluster that kfuzz begins reports nothing to its makers.
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            options |= {
                "address": "local",
                "num_cpus": max(min(processors(), self._jobs or processors()), 1),
                "include_dashboard": False,
                "object_store_memory": STORE_BYTES,
            }
        else:
            # The user's files travel with the run.
            files = {"working_dir": str(root), "excludes": list(_EXCLUDED)}
            options |= {"address": address, "runtime_env": files}
            if address.startswith("ray://"):
                del options["log_to_driver"]
        try:
            self._ray.init(**options)
        except Exception as error:
            text = str(error).strip().partition("\n")[0]
            raise UsageError(
                f"the cluster does not answer: {type(error).__name__}: {text}",
                where=self.title,
                fix="name the address of one that is up, or begin it with `ray start`; "
                "of one that asks for a token, set RAY_AUTH_TOKEN to it",
            ) from None

    def _wants_gpus(self, device: str) -> bool:
        has_gpu = bool(self._ray.cluster_resources().get("GPU"))
        backend = guess(device)
        if device == AUTO:
            return has_gpu
        wanted = backend is not None and backend.has.asynchronous
        if wanted and not has_gpu:
            where = f"{self.title} --device {device}"
            raise BackendError("the cluster has no GPU", where=where)
        return wanted


def _reason(error: Exception) -> str:
    """Return why a unit did not come to its end, in one line."""
    text = " ".join(str(getattr(error, "cause", None) or error).split())
    if "No module named 'kfuzz" in text:
        return "kfuzz is not installed there"
    return f"{type(error).__name__}: {text:.160}"


def _show_token() -> None:
    """Have Ray's client show the token that there is.

    A cluster asks for it where there was one when it began. The client does not look
    for it by itself, as the rest of Ray does, and asks once, on import.
    """
    given = os.environ.get("RAY_AUTH_TOKEN")
    path = os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token"
    if given or Path(path).is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")


# What `--on ray` does for `kfuzz run`: the driver on a cluster.


def search_on(on: str, config: RunConfig, *, stop: threading.Event) -> Iterator[Event]:
    """Yield the events of a search on a cluster; see `kfuzz.cli.run`."""
    from kfuzz.features.fleet.driver import Driver

    if config.isolate == "none":
        raise UsageError(
            "units run in processes of their own",
            where="--on ray --isolate none",
            fix="leave one of them out",
        )
    targets = tuple(_from_root(target, config.root) for target in config.targets)
    with closing(Cluster(on, config)) as cluster:
        portable = replace(config, targets=targets, jobs=1)
        yield from Driver(portable, cluster, stop).events()


def _from_root(target: str, root: Path) -> str:
    """Return a target as it is written in the project's folder.

    Raises:
        UsageError: if its path does not exist.
    """
    from kfuzz.targets.load import resolve

    resolve(target)
    path, separator, name = target.partition("::")
    if not Path(path).exists():
        return target
    return os.path.relpath(Path(path).resolve(), root) + separator + name
