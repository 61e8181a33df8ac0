"""Counts of monitored functions, and the file in which they outlive their process.

Each flush appends one line of JSON: the counts of one process so far. The last line of
a process holds all that is known of it.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

from kfuzz.core.codec import decode
from kfuzz.core.errors import DecodeError, HarnessError
from kfuzz.store import files
from kfuzz.store.files import read_plain

FORMAT: Final = 1


DEFAULT_PATH: Final = "kfuzz-monitor.jsonl"


# A line a second for a week, of a hundred functions.
_MOST_BYTES: Final = 256 << 20


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


NUMBERS: Final = tuple(f.name for f in fields(Counts) if f.name != "function")


@dataclass(frozen=True)
class ProcessCounts:
    """What one process has counted.

    Attributes:
        process: its id and the time of its beginning, as one text.
        when: UTC time of the count, ISO 8601 to the second.
        functions: its monitored functions.
    """

    process: str
    when: str
    functions: tuple[Counts, ...]


def append_counts(path: Path, counts: ProcessCounts) -> None:
    """Append a line to a file; several processes may do so at once.

    Raises:
        HarnessError: if the disk refuses.
    """
    line = (json.dumps({"format": FORMAT, **asdict(counts)}) + "\n").encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without waiting: in its place there may be a pipe.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        handle = os.open(path, flags, 0o644)
        try:
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":
                line = b"\n" + line  # after one that was cut short
            os.write(handle, line)
        finally:
            os.close(handle)
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise HarnessError(what, where=str(path)) from None


def read_counts(path: Path) -> tuple[ProcessCounts, ...]:
    """Return the last counts of each process, in the order of their first lines.

    A line without its end, of a process that was killed, is left out.

    Raises:
        DecodeError: if the file cannot be read or has no whole line; naming
            the line, if one is malformed or of an unknown format.
    """
    fix = "name the file that kfuzz.monitor.start(state=…) was given"
    text = read_plain(path, _MOST_BYTES, fix=fix).decode(errors="replace")
    found: dict[str, ProcessCounts] = {}
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        # One that a process could not finish: the next one begins a new line.
        if line.strip() and (line.endswith("}") or not line.startswith("{")):
            made = _parsed(line, f"{path}:{number}")
            found[made.process] = made
    if not found:
        raise DecodeError("holds no whole line of counts", where=str(path), fix=fix)
    return tuple(found.values())


def _parsed(line: str, where: str) -> ProcessCounts:
    document = files.document(files.loads(line, where=where), FORMAT, where=where)
    known = {n: v for n, v in document.items() if n != "format"}
    try:
        return decode(ProcessCounts, known, "counts")
    except DecodeError as error:
        raise DecodeError(str(error), where=where) from None


def total(processes: Iterable[ProcessCounts]) -> tuple[Counts, ...]:
    """Return the sums over processes, one for each function, in order."""
    sums: dict[str, Counter[str]] = {}
    for counts in (c for process in processes for c in process.functions):
        numbers = {n: getattr(counts, n) for n in NUMBERS}
        sums.setdefault(counts.function, Counter()).update(numbers)
    return tuple(Counts(name, **numbers) for name, numbers in sums.items())
