"""What `--on ray` does for `kfuzz run`: the driver on Ray's actors."""

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from kfuzz.core.budget import Scale
from kfuzz.core.errors import UsageError
from kfuzz.core.event import Event
from kfuzz.engine.config import RunConfig


def search_on(on: str, config: RunConfig, *, stop: threading.Event) -> Iterator[Event]:
    """Yield the events of a search on a cluster; see `kfuzz.cli.wiring`."""
    from kfuzz.fleet.driver import Driver
    from kfuzz.fleet.ray_fleet import RayFleet

    portable = _travelling(config)
    fleet = RayFleet(
        on, root=config.root, device=config.device, jobs=config.jobs,
        alone=config.scale is Scale.LARGE,
    )  # fmt: skip
    with closing(fleet):
        yield from Driver(portable, fleet, stop).events()


def _travelling(config: RunConfig) -> RunConfig:
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
    return replace(config, targets=targets, jobs=1)


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
