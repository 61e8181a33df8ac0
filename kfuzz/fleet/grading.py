"""A conformance statement made by a fleet: one kernel a unit, joined by the driver."""

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from kfuzz.core.errors import NothingToRunError
from kfuzz.core.event import Event, Notice, RunFinished, RunStarted
from kfuzz.core.statement import Statement
from kfuzz.engine.config import RunConfig
from kfuzz.fleet.driver import Driver
from kfuzz.fleet.elsewhere import travelling
from kfuzz.fleet.ray_fleet import RayFleet


class GradingOnRay:
    """A grade on a cluster of Ray, as `kfuzz.grade.grading.Grading` is one here.

    Args:
        on: what `--on` says.
        config: what to test and how long; its calibration is what the grade rests on.
        platform: whether torch's own kernels are meant.
    """

    def __init__(self, on: str, config: RunConfig, *, platform: bool) -> None:
        self._on, self._platform = on, platform
        self._config = travelling(config)
        self._names: tuple[str, ...] = ()
        self._statements: dict[str, Statement] = {}
        self._notices: dict[str, None] = {}
        self._ended: RunFinished | None = None

    def events(self, *, stop: threading.Event) -> Iterator[Event]:
        """Search, and yield what happens.

        Raises:
            KfuzzError: as `kfuzz.fleet.driver.Driver.events`.
        """
        config = self._config
        fleet = RayFleet(
            self._on, root=config.root, device=config.device, jobs=config.jobs
        )
        with closing(fleet):
            driver = Driver(
                replace(config, jobs=1), fleet, stop,
                graded=True, platform=self._platform,
            )  # fmt: skip
            self._statements = driver.statements
            for event in driver.events():
                match event:
                    case RunStarted():
                        self._names = event.kernels
                    case RunFinished():
                        self._ended = event
                    case Notice():
                        shown = f"{event.kernel}: " if event.kernel else ""
                        self._notices[shown + event.message] = None
                yield event

    def statement(self) -> Statement:
        """Return the statements of all kernels as one.

        Raises:
            NothingToRunError: if no unit came to its end.
        """
        made = [self._statements[n] for n in self._names if n in self._statements]
        return joined(
            made,
            self._config,
            lacking=[n for n in self._names if n not in self._statements],
            notices=list(self._notices),
            ended=self._ended,
        )


def joined(
    made: list[Statement],
    config: RunConfig,
    *,
    lacking: list[str],
    notices: list[str],
    ended: RunFinished | None,
) -> Statement:
    """Return statements of single kernels as one.

    Args:
        made: the statements, in order.
        config: of the grade.
        lacking: kernels of which none came.
        notices: what the driver told.
        ended: the end of the run, if it came to it.

    Raises:
        NothingToRunError: if there is none.
    """
    if not made:
        raise NothingToRunError("no kernel was graded", where=", ".join(lacking))
    first = made[0]
    devices = dict.fromkeys(one.place for one in made)
    told = [*notices, *(n for one in made for n in one.notices)]
    told += [f"{name}: not graded" for name in lacking]
    if len(devices) > 1:
        told.append(f"graded on devices that differ: {', '.join(devices)}")
    every = [set(one.instruments) for one in made]
    unended = ended is None or ended.interrupted or bool(lacking)
    return replace(
        first,
        seed=config.seed,
        max_cases=config.budget.max_cases,
        max_time=config.budget.max_time,
        elapsed_s=round(ended.elapsed_s, 1) if ended else 0.0,
        kernels=tuple(kernel for one in made for kernel in one.kernels),
        instruments=tuple(i for i in first.instruments if all(i in e for e in every)),
        interrupted=unended or any(one.interrupted for one in made),
        notices=tuple(dict.fromkeys(told)),
    )
