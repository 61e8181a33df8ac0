"""What `--on ray` does for the verbs: the driver on Ray's actors."""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from kfuzz.core.budget import Scale
from kfuzz.core.errors import UsageError
from kfuzz.core.event import Event
from kfuzz.engine.config import ReplayConfig, ReplayResult, RunConfig
from kfuzz.store.corpus import Problem, Stored


class OnRay:
    """Runs searches and replays on a cluster of Ray, see `kfuzz.cli.wiring`."""

    def search(
        self, on: str, config: RunConfig, *, stop: threading.Event
    ) -> Iterator[Event]:
        """Yield the events of a search; see `kfuzz.cli.wiring.Elsewhere`."""
        from kfuzz.fleet.driver import Driver
        from kfuzz.fleet.ray_fleet import RayFleet

        portable = travelling(config)
        fleet = RayFleet(
            on, root=config.root, device=config.device, jobs=config.jobs,
            alone=config.scale is Scale.LARGE,
        )  # fmt: skip
        with closing(fleet):
            yield from Driver(replace(portable, jobs=1), fleet, stop).events()

    def replay(
        self,
        on: str,
        stored: Sequence[Stored | Problem],
        config: ReplayConfig,
        *,
        stop: threading.Event,
    ) -> Iterator[ReplayResult]:
        """Yield what comes of findings; see `kfuzz.cli.wiring.Elsewhere`."""
        from kfuzz.fleet.ray_fleet import RayFleet
        from kfuzz.fleet.replaying import replayed

        if config.target:
            config = replace(config, target=_from_root(config.target, config.root))
        devices = {e.finding.device for e in stored if isinstance(e, Stored)}
        device = config.device or (devices.pop() if len(devices) == 1 else "auto")
        fleet = RayFleet(on, root=config.root, device=device)
        with closing(fleet):
            yield from replayed(stored, replace(config, jobs=1), fleet, stop)


def travelling(config: RunConfig) -> RunConfig:
    """Return a run's configuration, with targets as the project's folder has them.

    Raises:
        UsageError: if it cannot run in processes of other machines.
    """
    if config.isolate == "none":
        raise UsageError(
            "units run in processes of their own",
            where="--on ray --isolate none",
            fix="leave one of them out",
        )
    targets = tuple(_from_root(target, config.root) for target in config.targets)
    return replace(config, targets=targets)


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
