"""What is known of the power of contracts: a run names those of which nothing is."""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from kfuzz.contracts import platform
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators import OPERATORS
from kfuzz.core.event import KernelFinished, Notice
from kfuzz.core.verdict import Soundness, Verdict
from kfuzz.engine.search.round import KernelSearch
from kfuzz.execution.device.backends import BACKENDS
from kfuzz.features.lab.grade.statement import read_calibration, read_statement

UNCALIBRATED: Final = "uncalibrated"

# What is named of a longer list.
_NAMED: Final = 4
_KEPT: Final = Path(platform.__file__).parent / "statements"


class Calibrations:
    """What is known about the power of contracts on a device.

    Args:
        device: name of a backend.
        file: what `kfuzz calibrate` printed; None for the statements that kfuzz ships,
            which tell of the contracts that bind torch's own kernels.

    Raises:
        KfuzzError: if the file cannot be read.
    """

    def __init__(self, device: str, file: Path | None) -> None:
        # What cannot be read is said before the search, not after it.
        self._states = None if file is None else read_calibration(file).states
        self._device = device

    def state_of(self, contract: str, operator: Operator) -> Soundness:
        """Return what is known about a class on an operator; sound if nothing is."""
        name = operator.name_in_contracts
        if self._states is not None:
            return self._states.get(f"{contract}/{name}", Soundness.UNCALIBRATED)
        if name not in OPERATORS:
            return Soundness.UNCALIBRATED  # a user's: there are no witnesses
        states = _shipped_states(self._device)
        return states.get(f"{contract}/{operator.name}", Soundness.SOUND)

    def warn(
        self, kernels: Sequence[KernelSearch], finished: Sequence[KernelFinished]
    ) -> Iterator[Notice]:
        """Yield which contracts bore on kernels though nothing shows that they can.

        Args:
            kernels: of the run.
            finished: their results, in the same order.
        """
        found: dict[str, dict[str, None]] = {}
        for kernel, result in zip(kernels, finished, strict=True):
            operator = kernel.loaded.kernel.operator
            if kernel.loaded.target.reference:
                continue  # its operator is made of another's model
            for name, tally in result.contracts.items():
                if tally.verdict not in (Verdict.CONFORMS, Verdict.VIOLATES):
                    continue
                if self.state_of(name, operator) is not Soundness.SOUND:
                    found.setdefault(operator.name_in_contracts, {})[name] = None
        if found:
            texts = [
                f"{name} ({_some(list(c)) if name in OPERATORS else 'your own'})"
                for name, c in found.items()
            ]
            yield Notice(
                "",
                f"uncalibrated here: {_some(texts, '; ')}: no right and wrong "
                "kernels show that these contracts distinguish them",
                UNCALIBRATED,
            )


def shipped_statement(device: str) -> Path | None:
    """Return the statement that kfuzz ships for a backend, None if there is none."""
    kind = BACKENDS[device].torch_type
    return next(_KEPT.glob(f"torch-*-{kind}.json"), None)


@cache
def _shipped_states(device: str) -> dict[str, Soundness]:
    """Return what the shipped statement says of contracts, by identifier.

    An operator in which no fault of a class can be planted says nothing against the
    class where it is sound for others.
    """
    file = shipped_statement(device)
    states = {} if file is None else read_statement(file).states
    shown = {at.partition("/")[0] for at, s in states.items() if s is Soundness.SOUND}
    return {
        at: Soundness.SOUND
        if state is Soundness.UNCALIBRATED and at.partition("/")[0] in shown
        else state
        for at, state in states.items()
    }


def _some(names: Sequence[str], separator: str = ", ") -> str:
    more = len(names) - _NAMED
    shown = separator.join(names[:_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown
