"""What a monitor is to do, and what it keeps of a call until it is checked."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.operator import Operator
from kfuzz.features.monitor.detectors import Detector
from kfuzz.features.monitor.gate.device import DeviceGate
from kfuzz.features.monitor.gate.host import Reason
from kfuzz.features.monitor.seen import Call
from kfuzz.features.monitor.snapshot import Comparison, Snapshot
from kfuzz.features.monitor.storing import Store
from kfuzz.features.monitor.subjects import Arguments
from kfuzz.features.monitor.violation import Keep, Violation
from kfuzz.store.life import utc_now

Contract = str | Operator | BoundKernel | Callable[..., Any]


@dataclass(frozen=True)
class Options:
    """What the author of a monitor chose; see `kfuzz.monitor.monitor`.

    Attributes:
        store: where findings go; None for nowhere.
    """

    contract: Contract | None
    claims: Mapping[str, Any]
    rate: float
    signatures: bool
    arguments: Arguments | None
    outputs: tuple[str, ...]
    name: str | None
    seed: int | None
    on_violation: Callable[[Violation], None] | None
    store: Store | None
    keep: Keep
    detectors: tuple[Detector, ...]
    results: Callable[[Any], Any] | None
    autocast: bool
    device_gate: DeviceGate | None


@dataclass
class Pending:
    """A call that is being made and will be checked.

    Attributes:
        call: its arguments; None in compiled code, whose memory they may share with
            what comes after them, and once it has returned.
        before: copies of them.
        number: the call's.
        why: why it is looked at.
        when: when it was made.
        after: copies of its results, once it has returned.
        compared: what it changed in its arguments, likewise.
    """

    call: Call | None
    before: Snapshot
    number: int
    why: Reason
    when: str = field(default_factory=utc_now)
    after: Snapshot | None = None
    compared: Comparison | None = None

    @property
    def snapshots(self) -> list[Snapshot]:
        """All room that it has taken."""
        numbers = self.compared.numbers if self.compared else None
        return [s for s in (self.before, self.after, numbers) if s is not None]
