"""What a failure measured: the message of a failure, read back into its parts."""

import math
import re
from dataclasses import dataclass
from typing import Final

from kfuzz.core.verdict import Failure
from kfuzz.report.text import one_line

# As `kfuzz.contracts.evidence.Miss.describe` writes it, and as earlier versions did.
# The class before it is of a gradient, as `kfuzz.contracts.gradients.charging` puts it.
_MISS: Final = re.compile(
    r"(?:(?P<class>\S+ in a gradient): )?"
    r"(?P<name>[^\s\[]+)\[(?P<index>[\d, ]*)\] = (?P<got>[^\s,]+), "
    r"(?:allowed \[(?P<low>[^\s,]+), (?P<high>[^\s\]]+)\]"
    r"|admissible (?P<least>\S+) to (?P<most>[^\s,;]+)"
    r"|(?:exactly|expected) (?P<value>[^\s,;]+)"
    r"|(?:expected|against): (?P<promise>[^;(]*[^;(\s]))"
    r"(?:, (?P<ratio>\S+) x tolerance)?"
    r"(?: \((?P<some>\d+) of (?P<all>\d+) elements(?: wrong)?\))?"
)

# What unwritten memory holds in every other call, `kfuzz.execution.memory.poison`.
_POISON: Final = 2.0**100


@dataclass(frozen=True)
class Measured:
    """A failure side by side with what was expected.

    Attributes:
        actual: what the kernel did: "y[0] = 0.25 (3 of 3 elements wrong)".
        expected: the value or the range, "" where the message gives neither.
        rest: what else the message says: under which circumstances, and why.
    """

    actual: str
    expected: str = ""
    rest: str = ""


def measured(failure: Failure) -> Measured:
    """Return a failure's message in its parts, each value in one of them.

    A message of another form is all about what the kernel did.
    """
    message = one_line(failure.message)
    found = _MISS.match(message)
    if found is None:
        return _of_numbers(failure, message)
    place = f"{found['name']}[{found['index']}]" if found["index"] else found["name"]
    counts = []
    if found["some"]:
        counts.append(f"{found['some']} of {found['all']} elements wrong")
    if found["ratio"]:
        counts.append(f"error {found['ratio']} x tolerance")
    counts = [*_poison(failure.got), *counts]
    actual = f"{place} = {found['got']}" + (f" ({', '.join(counts)})" if counts else "")
    low, high = found["low"] or found["least"], found["high"] or found["most"]
    expected = found["value"] or found["promise"] or ""
    if low:
        known = failure.expected is not None and math.isfinite(failure.expected)
        expected = f"{failure.expected:.9g}, " if known else ""
        expected += f"allowed [{low}, {high}]"
    more = (found["class"], message[found.end() :].lstrip(" ;,"))
    rest = "; ".join(filter(None, more))
    return Measured(actual, expected, rest)


def _poison(got: float | None) -> list[str]:
    """Say where a number comes from that kfuzz leaves in memory of nobody's."""
    return ["the finite poison of unwritten memory"] if got == _POISON else []


def _of_numbers(failure: Failure, message: str) -> Measured:
    """Return the parts by a failure's own numbers, which its message may not give."""
    if failure.got is None or failure.expected is None:
        return Measured(message)
    place = failure.output or "output"
    if failure.index:
        place += f"[{', '.join(map(str, failure.index))}]"
    counts = []
    if failure.elements > 1:
        counts.append(f"{failure.elements} elements wrong")
    if failure.ratio is not None:
        counts.append(f"error {failure.ratio:.3g} x tolerance")
    counts = [*_poison(failure.got), *counts]
    actual = f"{place} = {failure.got:.9g}"
    actual += f" ({', '.join(counts)})" if counts else ""
    expected = f"{failure.expected:.9g}"
    finite = math.isfinite(failure.expected)
    if failure.low is not None and failure.high is not None and finite:
        expected += f", allowed [{failure.low:.9g}, {failure.high:.9g}]"
    return Measured(actual, expected, message)
