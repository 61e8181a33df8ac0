"""What a worker is asked, and what it tells: frozen values that travel by pickle.

All machines of a run have the same versions, and trust one another as Ray's do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kfuzz.core.finding import Finding, Target
from kfuzz.engine.config import ReplayConfig, RunConfig

CALIBRATION: Final = "calibration.json"
"""The file of a unit's own folder that `RunConfig.calibration` then names."""


@dataclass(frozen=True)
class Survey:
    """Which kernels do the targets of a run have?

    Attributes:
        config: of the run.
        homes: where the corpus says that kernels live, by name: see `named_apart`.
        platform: whether torch's own kernels on the device are meant instead.
    """

    config: RunConfig
    homes: Mapping[str, tuple[Target, ...]] = field(default_factory=dict)
    platform: bool = False


@dataclass(frozen=True)
class Place:
    """One kernel of a run, as a unit is told of it.

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

    @property
    def called(self) -> str:
        """The name that its findings bear."""
        return self.alias or self.name


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
    """A campaign of one kernel; tells `Happened`.

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


@dataclass(frozen=True)
class Replay:
    """A stored finding is run again; tells a `ReplayResult`.

    Attributes:
        finding: as stored.
        marks: the known findings of its kernel.
        config: how; its folders are the worker's.
    """

    finding: Finding
    marks: tuple[Finding, ...]
    config: ReplayConfig


@dataclass(frozen=True)
class Grade:
    """A conformance statement of one kernel; tells `Happened`, then a `Statement`."""

    search: Search
    platform: bool


@dataclass(frozen=True)
class Witnesses:
    """A part of a calibration; tells its `Place`, then `Outcome`s.

    Attributes:
        entries: encoded witnesses.
        device: as the command line names it.
        cases, seed: as `CalibrateConfig` has them.
    """

    entries: tuple[Any, ...]
    device: str
    cases: int
    seed: int


@dataclass(frozen=True)
class Trial:
    """Is a device sound? Tells why not, "" where it is, and its UUID."""

    device: str


Work = Survey | Search | Replay | Grade | Witnesses | Trial


@dataclass(frozen=True)
class Unit:
    """What a worker is to do next."""

    number: int
    work: Work


@dataclass(frozen=True)
class About:
    """What a worker is.

    Attributes:
        node: the machine's name or address.
        device: what it judges on, as no other machine has it.
        versions: see `kfuzz.fleet.versions`.
    """

    node: str
    device: str
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Item:
    """Something that a unit told.

    Attributes:
        number: the unit's.
        value: what.
        suspect: whether the device failed its canaries right after it.
    """

    number: int
    value: Any
    suspect: bool = False


@dataclass(frozen=True)
class Done:
    """A unit came to its end."""

    number: int


@dataclass(frozen=True)
class Failed:
    """A unit ended with an error."""

    number: int
    error: BaseException


@dataclass(frozen=True)
class Gone:
    """A worker is no more."""

    why: str


@dataclass(frozen=True)
class Tried:
    """A canary ended; `ailment` is "" where it passed."""

    ailment: str = ""


Told = About | Item | Done | Failed | Gone | Tried


@dataclass(frozen=True)
class Report:
    """What a worker told."""

    worker: str
    told: Told


def key_of(finding: Finding) -> str:
    """Return what tells a finding from others before it is reduced and explained."""
    return replace(finding, explanation=None).id
