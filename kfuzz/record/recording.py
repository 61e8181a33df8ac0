"""Recordings as files: one folder, a header, and one file for each kernel.

A kernel's file is written when its last case is done, at once or not at all, so that a
recording that was killed goes on with the next kernel.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kfuzz.core.codec import decode, encode
from kfuzz.core.errors import DecodeError, UsageError
from kfuzz.core.finding import safe_name, short_hash
from kfuzz.core.fingerprint import Fingerprint
from kfuzz.core.recipe import Case
from kfuzz.store import strict_json
from kfuzz.store.durable import replace_file
from kfuzz.store.plain_file import read_plain

FORMAT: Final = 1
HEADER: Final = "recording.json"
_SUFFIX: Final = ".json.z"
_UNFINISHED: Final = ".new-"
# Stored and unpacked; a bomb of zeros packs a thousandfold.
_MOST_BYTES: Final = 64 << 20
_MOST_UNPACKED: Final = 256 << 20


@dataclass(frozen=True)
class Header:
    """What a whole recording has in common.

    Attributes:
        backend: "cpu", "cuda" or "interpret".
        fingerprint: versions and device.
        seed: of the drawn cases.
        cases: cases drawn for each kernel, 0 where they are of another recording.
        targets: what was recorded, as on the command line.
        probed: whether the arithmetic was probed, too.
        like: hash of the recording whose cases these are, "" where they were drawn.
    """

    backend: str
    fingerprint: Fingerprint
    seed: int
    cases: int
    targets: tuple[str, ...]
    probed: bool = False
    like: str = ""


@dataclass(frozen=True)
class Result:
    """One output of one case.

    Attributes:
        name: of the output.
        dtype: its format.
        shape: its sizes.
        bits: hash of its bytes.
        values: hash with one NaN and one zero.
        flushed: the same hash with subnormals replaced by zero.
        classes: counts of nan, +inf, -inf, +0, -0 and subnormal elements.
        worst: greatest |error| / tolerance.
        missed: elements outside what is allowed.
        allowed: hash of the least and greatest allowed values.
        exact: whether each element was decided, and one value alone admitted for it.
        data: all bytes, where they are kept.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    bits: str
    values: str
    flushed: str
    classes: Mapping[str, int]
    worst: float = 0.0
    missed: int = 0
    allowed: str = ""
    exact: bool = False
    data: str | None = None


@dataclass(frozen=True)
class Entry:
    """One case on one device.

    Attributes:
        key: hash of the recipe.
        case: the recipe.
        inputs: hash of the input bytes as made on the device.
        subnormals: subnormal elements of the inputs.
        outcome: "allowed", "outside", "refused" by the kernel, or "unjudged".
        contract: the clause that it breaks, "" where none.
        message: what shows it, what the kernel said, or why it is unjudged.
        unlike: of the repeats those with other bits than the first.
        results: the outputs, none where nothing could be read.
    """

    key: str
    case: Case
    inputs: str
    subnormals: int
    outcome: str
    contract: str = ""
    message: str = ""
    unlike: int = 0
    results: tuple[Result, ...] = ()


@dataclass(frozen=True)
class Recorded:
    """One kernel.

    Attributes:
        name: of the kernel; the full one where the recording has two of a name.
        operator: what it computes.
        claims: declarations that differ from the language's defaults, as text.
        entries: its cases.
        probes: what probes found, by "probe/dtype", or "probe/dtype/terms"; of an
            order of additions with its hash.
        problem: why cases are lacking, "" if none are.
    """

    name: str
    operator: str
    claims: Mapping[str, str]
    entries: tuple[Entry, ...]
    probes: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class Recording:
    """A recording as read: its header, and the kernels by operator and name."""

    header: Header
    kernels: Mapping[tuple[str, str], Recorded]

    @property
    def device(self) -> str:
        """What it was made on, in words."""
        print_ = self.header.fingerprint
        where = print_.device or self.header.backend
        return f"{where} ({self.header.backend}, torch {print_.torch})"


def open_folder(folder: Path, header: Header) -> None:
    """Begin a recording, or go on with one that was made in the same way.

    Raises:
        UsageError: if the folder holds another recording or other files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / HEADER
    # Other parts may be begun at the same moment.
    there = [f for f in folder.iterdir() if not f.name.startswith(_UNFINISHED)]
    if path in there:
        if read_header(folder) != header:
            raise UsageError(
                "another recording is there, of other targets, cases or versions",
                where=str(folder),
                fix="give another --out, or delete it",
            )
        return
    if there:
        raise UsageError(
            "the folder is not empty, and no recording",
            where=str(folder),
            fix="give a new folder as --out",
        )
    text = strict_json.dumps({"format": FORMAT, "header": encode(header)})
    replace_file(path, text.encode(), prefix=_UNFINISHED)


def path_of(folder: Path, operator: str, name: str) -> Path:
    """Return the file of a kernel: of each its own, also where case is ignored."""
    named = f"{operator}--{name}"
    return folder / f"{safe_name(named)}-{short_hash(named)}{_SUFFIX}"


def is_recorded(folder: Path, operator: str, name: str) -> bool:
    """Whether a kernel's file is there, and has all that was to be in it.

    Raises:
        DecodeError: if it cannot be read.
    """
    path = path_of(folder, operator, name)
    return path.exists() and not _read_kernel(path).problem


def write_kernel(folder: Path, made: Recorded) -> None:
    """Write a kernel's file at once."""
    document = {"format": FORMAT, "kernel": encode(made)}
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    place = path_of(folder, made.operator, made.name)
    replace_file(place, zlib.compress(text.encode(), 9), prefix=_UNFINISHED)


def read_header(folder: Path) -> Header:
    """Return the header of a recording.

    Raises:
        DecodeError: if there is none, or it is of another format.
    """
    path = folder / HEADER
    fix = "`kfuzz record --out DIR` makes one"
    return decode(Header, _part(read_plain(path, 1 << 20, fix=fix), "header", path))


def read(folder: Path) -> Recording:
    """Return a recording.

    Raises:
        DecodeError: if a file is missing, damaged, too large or of another format.
    """
    header = read_header(folder)
    kernels = {}
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        kernel = _read_kernel(path)
        if path != path_of(folder, kernel.operator, kernel.name):
            what = f"holds {kernel.name} of {kernel.operator}"
            raise DecodeError(what, where=str(path), fix="give it its own name back")
        kernels[kernel.operator, kernel.name] = kernel
    return Recording(header, kernels)


def _read_kernel(path: Path) -> Recorded:
    packed = read_plain(path, _MOST_BYTES, follow=False)
    return decode(Recorded, _part(_unpacked(packed, path), "kernel", path))


def _unpacked(packed: bytes, path: Path) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(packed, _MOST_UNPACKED)
    except zlib.error as error:
        raise DecodeError(f"is damaged: {error}", where=str(path)) from None
    if not unpacking.eof:
        more = unpacking.unconsumed_tail
        why = "unpacks to more than it can need" if more else "is cut off"
        raise DecodeError(why, where=str(path))
    return text


def _part(text: bytes, name: str, path: Path) -> object:
    where = str(path)
    document = strict_json.loads(text, where=where)
    document = strict_json.document(document, FORMAT, where=where)
    if name not in document:
        raise DecodeError(f"holds no {name}", where=where)
    return document[name]
