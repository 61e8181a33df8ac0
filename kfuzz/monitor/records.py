"""What a monitor is told to do, and what it keeps of a call until it is checked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kfuzz.monitor.detectors import Detector
from kfuzz.monitor.gate.device import DeviceGate, Held
from kfuzz.monitor.gate.host import Reason
from kfuzz.monitor.seen import Call, Seen
from kfuzz.monitor.snapshot import Comparison, Snapshot
from kfuzz.monitor.storing import Store
from kfuzz.monitor.violation import Keep, Violation
from kfuzz.store.life import utc_now

OnViolation = Callable[[Violation], None]


@dataclass(frozen=True)
class Options:
    """What the author of a monitor chose.

    Attributes:
        on_violation: called in the worker with each violation.
        store: where findings go; None for nowhere.
        keep: how much of the data is told.
        detectors: what flags calls by statistics of their data.
        results: from what the function returns to what the contract speaks of.
        autocast: whether calls under torch.autocast are judged as others.
        device_gate: what flags calls where their data lies.
    """

    on_violation: OnViolation | None = None
    store: Store | None = None
    keep: Keep = Keep.FULL
    detectors: tuple[Detector, ...] = ()
    results: Callable[[Any], Any] | None = None
    autocast: bool = False
    device_gate: DeviceGate | None = None


@dataclass
class Pending:
    """A call that is being made and will be checked.

    Attributes:
        call: its arguments; None in compiled code, whose memory they may share with
            what comes after them.
        before: copies of them.
        number: the call's.
        why: why it is looked at.
        after: copies of its results, once it has returned.
        compared: what it changed in its arguments, likewise.
    """

    call: Call | None
    before: Snapshot
    number: int
    why: Reason
    after: Snapshot | None = None
    compared: Comparison | None = None

    @property
    def snapshots(self) -> list[Snapshot]:
        """All room that it has taken."""
        numbers = self.compared.numbers if self.compared else None
        return [s for s in (self.before, self.after, numbers) if s is not None]


@dataclass(frozen=True)
class Record:
    """A call that waits for its check: copies alone, nothing of the caller's.

    Attributes:
        seen: the call, without what it changed.
        compared: tells what it changed.
        snapshots: the room that all of it takes.
        number: the call's.
        why: why it is looked at.
        when: when it was made.
    """

    seen: Seen
    compared: Comparison
    snapshots: Sequence[Snapshot | Held]
    number: int
    why: Reason
    when: str = field(default_factory=utc_now)
