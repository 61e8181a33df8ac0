"""Counts of monitored functions."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Counts:
    """What became of the calls of one monitored function.

    Attributes:
        function: its name.
        seen: calls.
        sampled: calls chosen to be looked at.
        new_signatures: of these, for a signature not seen before.
        outliers: calls that a detector flagged.
        dropped: calls chosen while there was no buffer for their data.
        skipped: calls chosen whose data could not be copied: under CUDA graph capture,
            of tensor subclasses, under other modes of torch.
        outside: calls that the contract does not cover.
        raised: calls chosen that raised.
        checked: calls judged.
        undecided: of these, with no element that could be judged.
        violations: of these, that broke their contract.
        errors: calls that a reference, a callback, or the monitor itself failed on.
    """

    function: str
    seen: int = 0
    sampled: int = 0
    new_signatures: int = 0
    outliers: int = 0
    dropped: int = 0
    skipped: int = 0
    outside: int = 0
    raised: int = 0
    checked: int = 0
    undecided: int = 0
    violations: int = 0
    errors: int = 0


# Why nothing was judged of calls that were chosen, in words, and what to do.
_LOST: Final = {
    "dropped": "found no buffer for their data (kfuzz.monitor.start(ring_bytes=…))",
    "skipped": "could not be copied",
    "outside": "are outside the contract",
    "raised": "raised",
    "errors": "met an error",
    "undecided": "had no element that could be judged",
}


_WAITED: Final = (
    "waited for their check when the program ended (kfuzz.monitor.flush() before it "
    "does, or start(exit_seconds=…))"
)


def unjudged(counts: Counts) -> str:
    """Return why nothing was judged of a function that was called; "" otherwise."""
    if counts.checked > counts.undecided or not counts.seen:
        return ""
    calls = "its one call" if counts.seen == 1 else f"its {counts.seen} calls"
    if not counts.sampled:
        return f"none of {calls} was chosen to be looked at: see rate="
    lost = {why: getattr(counts, name) for name, why in _LOST.items()}
    lost[_WAITED] = counts.sampled - sum(lost.values())
    reasons = ", ".join(f"{n} {why}" for why, n in lost.items() if n > 0)
    return f"none of {calls} was judged: of {counts.sampled} chosen {reasons}"
