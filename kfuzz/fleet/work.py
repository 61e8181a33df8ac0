"""What a worker is asked, and what it reports: frozen values that travel by pickle.

All machines of a run have the same versions, and trust one another as Ray's do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from kfuzz.core.finding import Finding, Target
from kfuzz.engine.config import RunConfig

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
    """A campaign of one kernel; reports `Happened`.

    Attributes:
        config: of the campaign; its folders are the worker's.
        stored: what the corpus holds of the kernel that bears on it.
        calibration: the content of the file that the run names.
    """

    config: RunConfig
    stored: tuple[Finding, ...] = ()
    calibration: bytes | None = None


@dataclass(frozen=True)
class Happened:
    """An event of a campaign, with the finding that it speaks of, as stored."""

    event: Any
    finding: Finding | None = None


Work = Survey | Search | str
"""The name of a device asks why it is not sound, "" where it is, and its UUID."""


class About(StrEnum):
    """What a report is about.

    READY: the worker, and its value is its machine, its device as no other machine has
    it, and its versions. ITEM: something that its unit came to. DONE: its unit ended.
    FAILED: it ended with an error. AILING: its device failed its canaries, and why.
    GONE: the worker is no more, and why.
    """

    READY = "ready"
    ITEM = "item"
    DONE = "done"
    FAILED = "failed"
    AILING = "ailing"
    GONE = "gone"


@dataclass(frozen=True)
class Report:
    """What a worker reports.

    Attributes:
        worker: its name.
        about: what it is about.
        value: see `About`.
        unit: number of the unit.
    """

    worker: str
    about: About
    value: Any = None
    unit: int = 0


def key_of(finding: Finding) -> str:
    """Return what tells a finding from others before it is reduced and explained."""
    return replace(finding, explanation=None).id
