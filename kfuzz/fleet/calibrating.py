"""A calibration by a fleet: witnesses go to workers by the dozen."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from kfuzz.contracts.witnesses.roster import Entry
from kfuzz.core.calibration import Calibration, Outcome
from kfuzz.core.codec import encode
from kfuzz.core.errors import HarnessError
from kfuzz.fleet.dispatch import Dispatch, Fleet, Heard, Over
from kfuzz.fleet.plan import Task
from kfuzz.fleet.ray_fleet import RayFleet
from kfuzz.fleet.work import Witnesses, Work
from kfuzz.grade.calibrating import CalibrateConfig, Place, calibrated

TOGETHER: Final = 12
"""Witnesses of a unit: importing torch for each would take as long as a search."""
_PLACE: Final = "place"


def calibrate_on(
    on: str, config: CalibrateConfig, *, stop: threading.Event
) -> Iterator[Outcome | Calibration]:
    """Search the witnesses on a cluster of Ray; otherwise as `calibrate`.

    Raises:
        KfuzzError: as `kfuzz.grade.calibrating.calibrate`; if there are no workers.
    """
    jobs = config.jobs or None
    fleet = RayFleet(on, root=Path.cwd(), device=config.device, jobs=jobs)
    with closing(fleet):
        yield from calibrated_by(fleet, config, stop=stop)


def calibrated_by(
    fleet: Fleet,
    config: CalibrateConfig,
    *,
    stop: threading.Event,
    entries: Sequence[Entry] | None = None,
) -> Iterator[Outcome | Calibration]:
    """Search the witnesses by a fleet, which whoever made it closes.

    Raises:
        KfuzzError: see `calibrate_on`.
    """
    dispatch = Dispatch(fleet, stop)
    units: dict[str, tuple[Entry, ...]] = {_PLACE: ()}

    def work_of(task: Task) -> Work:
        encoded = tuple(map(encode, units[task.subject]))
        return Witnesses(encoded, config.device, config.cases, config.seed)

    def followed(subjects: Sequence[str]) -> Iterator[Place | Outcome]:
        dispatch.plan.ask(subjects)
        for told in dispatch.run(work_of, lambda task: True):
            match told:
                case Heard(_, Place() | Outcome() as value):
                    yield value
                case Over(_, why) if why and not stop.is_set():
                    raise HarnessError(f"witnesses could not be searched: {why}")

    def search(chosen: Sequence[Entry]) -> Iterator[Outcome]:
        # Those of one backend together: each needs processes of its own.
        ordered = sorted(chosen, key=lambda entry: (entry.alone, entry.backend))
        for first in range(0, len(ordered), TOGETHER):
            some = tuple(ordered[first : first + TOGETHER])
            units[f"witnesses from {first}"] = some
        seen: set[str] = set()
        for value in followed([name for name in units if name != _PLACE]):
            if isinstance(value, Outcome) and value.kernel not in seen:
                seen.add(value.kernel)
                yield value

    places = [p for p in followed([_PLACE]) if isinstance(p, Place)]
    if not places:
        raise HarnessError("no worker reported its device")
    yield from calibrated(config, places[0], search, entries)
