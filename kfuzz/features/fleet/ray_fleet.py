"""Workers that are actors of Ray: one for a share of a GPU, or for a processor.

Nothing here is imported before a run asks for Ray.
"""

import contextlib
import os
import pickle
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kfuzz.core.budget import Scale
from kfuzz.core.errors import BackendError, UsageError
from kfuzz.core.event import Event
from kfuzz.core.home import with_home
from kfuzz.engine.config import RunConfig
from kfuzz.engine.workers.jobs import PROCESSORS_EACH, SHARING, processors
from kfuzz.execution.device.backends import AUTO, guess
from kfuzz.features.fleet.worker import About, Report, Work, Worker

ON: Final = "ray"
ADDRESS: Final = "RAY_ADDRESS"
"""Ray's own variable: the cluster that is meant where none is named."""
HINT: Final = "pip install 'kfuzz[ray]'"
POLL_SECONDS: Final = 5.0
"""How long a worker keeps a question open while it has nothing to tell."""
_GROWTH_SECONDS: Final = 5.0
"""Between two looks whether the cluster has changed."""
STORE_BYTES: Final = 80_000_000
"""Of shared memory of a cluster that is begun here; messages are small."""
# What no worker needs of a project.
_EXCLUDED: Final = (".git", ".venv", "venv", "node_modules", "__pycache__", "corpus")


@dataclass
class _Actor:
    """One actor, as the driver sees it.

    Attributes:
        handle: Ray's.
        asked: the answer that is awaited: what it is, then what it reports.
        heard: the number of its last message.
        ready: whether it has said what it is.
    """

    handle: Any
    asked: Any
    heard: int = 0
    ready: bool = False


class RayFleet:
    """A cluster of Ray, begun here where none is named.

    Args:
        on: what `--on` says: an address, or none for that of RAY_ADDRESS, or for a
            cluster of this machine's own.
        root: the project, whose files the workers get.
        device: as the command line names it.
        jobs: most workers; None for as many as the cluster has room for.
        alone: whether each worker has a GPU's memory for itself.

    Raises:
        UsageError: if Ray is not installed, or the cluster does not answer.
    """

    def __init__(
        self,
        on: str,
        *,
        root: Path,
        device: str,
        jobs: int | None = None,
        alone: bool = False,
    ) -> None:
        address = on if "://" in on else os.environ.get(ADDRESS, "")
        if address.startswith("ray://"):
            _show_token()
        try:
            import ray
        except ImportError:
            what = "needs Ray, which is not installed"
            raise UsageError(what, where=f"--on {ON}", fix=HINT) from None
        self._ray: Any = ray
        self.now = time.monotonic
        self._own = not address or address == "local"
        self.title = f"--on {ON}" + (f" ({address})" if address else "")
        self._root, self._device, self._jobs = root, device, jobs
        self._sharing = 1 if alone else SHARING
        self._actors: dict[str, _Actor] = {}
        self._parked: list[_Actor] = []
        self._reports: list[Report] = []
        self._names = 0
        self._looked = 0.0
        self._connect(address)
        try:
            self._gpus = self._wants_gpus()
            self._grow()
        except BaseException:
            self.close()
            raise

    def receive(self, seconds: float) -> Sequence[Report]:
        """Return what workers report; see `kfuzz.features.fleet.worker.Fleet`."""
        if time.monotonic() - self._looked > _GROWTH_SECONDS:
            self._grow()
        owners = {actor.asked: name for name, actor in self._actors.items()}
        if not owners:
            time.sleep(seconds)
        else:
            # Ray returns them in order: the first would starve the others.
            ready, _ = self._ray.wait(
                list(owners), num_returns=len(owners), timeout=seconds / 10
            )
            if not ready:
                ready, _ = self._ray.wait(list(owners), timeout=seconds)
            for reference in ready:
                self._answered(owners[reference], reference)
        reports, self._reports = self._reports, []
        return reports

    def assign(self, worker: str, number: int, work: Work) -> None:
        """Have a worker begin a unit."""
        if (actor := self._actors.get(worker)) is not None:
            actor.handle.start.remote(number, work)

    def recall(self, worker: str) -> None:
        """Have a worker end its unit soon."""
        if (actor := self._actors.get(worker)) is not None:
            actor.handle.stop.remote()

    def dismiss(self, worker: str) -> None:
        """Ask a worker no more, and have its unit end.

        It keeps its place: else Ray would give the same device to the next one.
        """
        if (actor := self._actors.pop(worker, None)) is not None:
            self._parked.append(actor)
            actor.handle.stop.remote()

    def close(self) -> None:
        """End all workers, and the cluster where it is this run's own."""
        for actor in [*self._actors.values(), *self._parked]:
            with contextlib.suppress(Exception):  # it may be gone
                self._ray.kill(actor.handle)
        with contextlib.suppress(Exception):
            self._ray.shutdown()

    def _connect(self, address: str) -> None:
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
        if self._own:
            # A cluster that kfuzz begins tells its makers nothing.
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            options |= {
                "address": "local",
                "num_cpus": max(min(processors(), self._jobs or processors()), 1),
                "include_dashboard": False,
                "object_store_memory": STORE_BYTES,
            }
        else:
            # The user's files travel with the run.
            files = {"working_dir": str(self._root), "excludes": list(_EXCLUDED)}
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

    def _wants_gpus(self) -> bool:
        backend = guess(self._device)
        if self._device == AUTO:
            return bool(self._ray.cluster_resources().get("GPU"))
        wanted = backend is not None and backend.has.asynchronous
        if wanted and not self._ray.cluster_resources().get("GPU"):
            raise BackendError(
                "the cluster has no GPU", where=f"{self.title} --device {self._device}"
            )
        return wanted

    def _grow(self) -> None:
        """Begin as many workers as the cluster has room for and has not."""
        self._looked = time.monotonic()
        has = self._ray.cluster_resources()
        cpus, gpus = has.get("CPU", 0.0), has.get("GPU", 0.0)
        options: dict[str, Any] = {"num_cpus": 1, "max_concurrency": 4}
        most = int(cpus)
        if self._gpus:
            ample = int(cpus // (PROCESSORS_EACH * max(gpus, 1)))
            each = max(min(ample, self._sharing), 1)
            most = min(int(gpus) * each, int(cpus))
            options["num_gpus"] = 1 / each
        if self._jobs is not None:
            most = min(most, self._jobs)
        if self._own:  # on the same disk
            path = with_home(os.environ)["PYTHONPATH"]
            options["runtime_env"] = {"env_vars": {"PYTHONPATH": path}}
        while len(self._actors) + len(self._parked) < most:
            self._names += 1
            root = str(self._root) if self._own else ""
            made = self._ray.remote(Worker).options(**options)
            handle = made.remote(root, self._device, gpu=self._gpus)
            name = f"worker {self._names}"
            self._actors[name] = _Actor(handle, handle.about.remote())

    def _answered(self, name: str, reference: Any) -> None:
        actor = self._actors[name]
        try:
            answer = self._ray.get(reference)
        except Exception as error:
            del self._actors[name]
            with contextlib.suppress(Exception):
                self._ray.kill(actor.handle)
            self._reports.append(Report(name, About.GONE, _reason(error)))
            return
        if not actor.ready:
            actor.ready = True
            self._reports.append(Report(name, About.READY, answer))
        else:
            for number, message in answer:
                actor.heard = number
                self._reports.append(Report(name, *pickle.loads(message)))
        actor.asked = actor.handle.take.remote(actor.heard, POLL_SECONDS)


def _reason(error: Exception) -> str:
    """Return why an actor is gone, in one line."""
    text = " ".join(str(getattr(error, "cause", None) or error).split())
    kind = type(error).__name__
    if "No module named 'kfuzz" in text:
        return "kfuzz is not installed there"
    return f"{kind}: {text:.160}"


def _show_token() -> None:
    """Have Ray's client show the token that there is.

    A cluster asks for it where there was one when it began. The client does not look
    for it by itself, as the rest of Ray does, and asks once, on import.
    """
    told = os.environ.get("RAY_AUTH_TOKEN")
    path = os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token"
    if told or Path(path).is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")


# What `--on ray` does for `kfuzz run`: the driver on Ray's actors.


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
    portable = replace(config, targets=targets, jobs=1)
    fleet = RayFleet(
        on, root=config.root, device=config.device, jobs=config.jobs,
        alone=config.scale is Scale.LARGE,
    )  # fmt: skip
    with closing(fleet):
        yield from Driver(portable, fleet, stop).events()


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
