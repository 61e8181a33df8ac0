"""The folder in which kfuzz keeps what can be had again: built kernels, mirrors."""

import fcntl
import hashlib
import json
import os
import secrets
import stat
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from kfuzz.core.codec import decode, encode
from kfuzz.core.errors import DecodeError, StorageError
from kfuzz.core.event import KernelProof
from kfuzz.core.finding import short_hash
from kfuzz.core.verdict import Tried

T = TypeVar("T")

VARIABLE: Final = "KFUZZ_CACHE"
"""Environment variable: the folder, in place of `kfuzz` in the user's cache folder."""

MIRRORS: Final = "corpora"
"""Folder of the cache: a folder for each corpus on a URL."""
FINDINGS: Final = "findings"
"""Folder of such a one: the corpus as it is here."""


def is_mirror(corpus: Path) -> bool:
    """Whether a corpus is in the place of one that mirrors a URL."""
    home = corpus.parent.parent
    if (home.name, corpus.name) != (MIRRORS, FINDINGS):
        return False
    return home == cache_folder(MIRRORS)


def cache_folder(*parts: str) -> Path:
    """Return a folder of kfuzz's cache, made if need be, for the user alone.

    Where the user's own cache folder cannot be written to it lies among the system's
    temporary files.

    Raises:
        OSError: if no folder can be made, or the one there is another user's.
    """
    given = os.environ.get(VARIABLE)
    if given:
        return _made(Path(given), parts)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    try:
        return _made(Path(base) / "kfuzz", parts)
    except OSError:
        own = Path(tempfile.gettempdir()) / f"kfuzz-{os.getuid()}"
        return _made(own, parts)


def _made(folder: Path, parts: tuple[str, ...]) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_uid != os.getuid():  # code from it is run
        raise PermissionError(f"{folder} is another user's")
    inner = folder.joinpath(*parts)
    inner.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not os.access(inner, os.W_OK):
        raise PermissionError(f"{inner} cannot be written to")
    return inner


# JSON text from strangers to plain values, and plain values to readable text.

# A finding nests 6 deep; deeper text is hostile and would exhaust the stack of
# whatever walks it.
MAX_DEPTH: Final = 32
_NESTING: Final = (dict, list)


def loads(text: bytes | str, *, where: str = "") -> Any:
    """Parse strict JSON: no NaN or Infinity, no duplicate keys, bounded depth.

    Args:
        text: a document, UTF-8 where it is bytes.
        where: the file or channel, for error messages.

    Raises:
        DecodeError: on anything else.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode()
        value = json.loads(
            text, parse_constant=_no_constant, object_pairs_hook=_no_duplicates
        )
    # ValueError covers bad UTF-8, bad JSON and integers beyond Python's limit.
    except (ValueError, RecursionError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        raise DecodeError(f"not JSON: {reason}", where=where) from None
    level, depth = [value] if type(value) in _NESTING else [], 0
    while level:
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) in _NESTING
        ]
        depth += 1
        if depth > MAX_DEPTH:
            raise DecodeError(f"nested deeper than {MAX_DEPTH} levels", where=where)
    return value


class UnknownFormatError(DecodeError):
    """It was written in a format that this version does not know."""


def document(value: Any, known: int, *, where: str = "", fix: str = "") -> Any:
    """Return an object without its format number, which must be the known one.

    Args:
        value: as `loads` returns it.
        known: the number.
        where: the file or channel, for error messages.
        fix: how one comes by such an object.

    Raises:
        DecodeError: if it is no object, or says no format.
        UnknownFormatError: if it is of another format.
    """
    if not isinstance(value, dict):
        raise DecodeError("not an object", where=where, fix=fix)
    if "format" not in value:
        raise DecodeError("missing field", where=f"{where}: format", fix=fix)
    number = value.pop("format")
    if isinstance(number, bool) or number != known:
        raise UnknownFormatError(
            f"format {number!r:.20} is not known to this version, which reads {known}",
            where=where,
            fix="use the kfuzz that wrote it, or a newer one",
        )
    return value


def value_of(
    kind: type[T], name: str, text: bytes, known: int, *, where: str, fix: str = ""
) -> T:
    """Return a value that a document holds under a name.

    Args:
        kind: its class.
        name: the key.
        text: the document.
        known: its format number.
        where: the file, for error messages.
        fix: how one comes by such a file.

    Raises:
        DecodeError: if it holds none; names the field.
        UnknownFormatError: if it is of another format.
    """
    found = document(loads(text, where=where), known, where=where, fix=fix)
    if name not in found:
        raise DecodeError(f"holds no {name}", where=where, fix=fix)
    return decode(kind, found[name], f"{where}: {name}")


def dumps(value: Any) -> str:
    """Return readable strict JSON: one line per field, flat lists on one line.

    Characters that do not print, or that no encoding has, are written as escapes.

    Raises:
        ValueError: if a number is not finite.
    """
    return _pretty(value, "") + "\n"


def line(value: Any) -> str:
    """Return strict JSON on one line, as readable as it may be; see `dumps`.

    Raises:
        ValueError: if a number is not finite.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _pretty(value: Any, indent: str) -> str:
    inner = indent + "  "
    if isinstance(value, dict) and value:
        rows = [f"{line(str(k))}: {_pretty(v, inner)}" for k, v in value.items()]
        return _block("{", rows, "}", indent)
    if isinstance(value, list) and any(isinstance(v, dict | list) for v in value):
        return _block("[", [_pretty(v, inner) for v in value], "]", indent)
    return line(value)


def _block(opening: str, rows: list[str], closing: str, indent: str) -> str:
    body = ",\n".join(f"{indent}  {row}" for row in rows)
    return f"{opening}\n{body}\n{indent}{closing}"


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("an object names a field twice")
    return fields


# Files that others wrote or put there, read with care.
#
# A pipe would keep a reader waiting, a device never ends, and what is too large fills
# the memory or takes minutes to parse.

MOST_SOURCE: Final = 1 << 24
"""Bytes of a program at most: what is generated and written out at length has some."""


class MissingError(DecodeError):
    """There is no such file."""


def read_plain(path: Path, most: int, *, follow: bool = True, fix: str = "") -> bytes:
    """Return what a plain file holds.

    Args:
        path: the file.
        most: bytes above which it is not read.
        follow: whether it may be a link.
        fix: the way out, for error messages.

    Raises:
        MissingError: if there is none.
        DecodeError: if it is no plain file, too large, or cannot be read.
    """
    where = str(path)
    flags = (
        os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    )  # a pipe has no writer to wait for
    try:
        handle = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise MissingError("the file is missing", where=where, fix=fix) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        what = f"cannot be read: {reason}"
        if not follow and path.is_symlink():
            what = "is a link, which is not followed"
        raise DecodeError(what, where=where, fix=fix) from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise DecodeError("is not a plain file", where=where, fix=fix)
        if status.st_size > most:
            what = f"{status.st_size} bytes are more than it can need, at most {most}"
            raise DecodeError(what, where=where, fix=fix)
        with open(handle, "rb", closefd=False) as file:
            return file.read(most)
    except OSError as error:
        raise DecodeError(f"cannot be read: {error.strerror}", where=where) from None
    finally:
        os.close(handle)


def read_source(path: Path, most: int = MOST_SOURCE) -> str:
    """Return the text of a program, or what stands beside one, in UTF-8.

    Raises:
        DecodeError: as `read_plain`, or if it is no UTF-8.
    """
    try:
        return read_plain(path, most).decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"not UTF-8: {error}", where=str(path)) from None


# The last proof of each kernel, and what the last runs saw, beside the findings.

# Folders whose names begin with a dot hold no findings.
_FOLDER: Final = ".proofs"
_RUNS: Final = ".runs"
_FORMAT: Final = 1
# A property takes some hundred bytes, and a kernel in a run a thousand.
_MOST_BYTES: Final = 1 << 20
_MOST_RUN_BYTES: Final = 1 << 24

MAX_RUNS: Final = 30
"""Runs kept: a month of nights."""


Errors = dict[str, tuple[Tried, ...]]
"""What a run saw of each kernel, by node id: `KernelFinished.errors`."""


def keep_run(corpus: Path, when: str, errors: Errors) -> None:
    """Keep what a run saw, in a file of its own, beside that of `MAX_RUNS` runs.

    Nothing where the folder cannot be written to: no verdict rests on it.

    Args:
        corpus: the corpus.
        when: the run began, UTC.
        errors: what it saw.
    """
    every = {
        node: [{k: v for k, v in encode(t).items() if v} for t in seen]
        for node, seen in errors.items()
        if seen
    }
    if not every:
        return
    with suppress(OSError):
        folder = corpus / _RUNS
        folder.mkdir(parents=True, exist_ok=True)
        # Names in the order of time, of runs of one second too.
        name = f"{when.replace(':', '')}-{time.time_ns()}.json"
        text = json.dumps({"format": _FORMAT, "when": when, "kernels": every}) + "\n"
        replace_file(folder / name, text.encode(), prefix=".new-", sync=False)
        # No others: in a corpus of strangers the folder may be a link.
        for old in sorted(folder.glob("????-??-??T??????Z-*.json"))[:-MAX_RUNS]:
            old.unlink(missing_ok=True)


def kept_runs(corpus: Path) -> list[tuple[str, Errors]]:
    """Return when the last runs began and what they saw, the latest last.

    What cannot be read is left out.
    """
    made = []
    for path in sorted((corpus / _RUNS).glob("*.json"))[-MAX_RUNS:]:
        with suppress(DecodeError):
            text, where = read_plain(path, _MOST_RUN_BYTES, follow=False), str(path)
            said = document(loads(text, where=where), _FORMAT, where=where)
            when = decode(str, said.get("when"), f"{where}: when")
            made.append((when, decode(Errors, said.get("kernels"), where)))
    return made


def share_runs(corpus: Path, other: Path) -> None:
    """Keep what the last runs of another corpus saw, too."""
    for path in (other / _RUNS).glob("*.json"):
        with suppress(OSError, DecodeError):
            place = corpus / _RUNS / path.name
            place.parent.mkdir(parents=True, exist_ok=True)
            content = read_plain(path, _MOST_RUN_BYTES, follow=False)
            replace_file(place, content, prefix=".new-", sync=False)


def keep_proof(corpus: Path, proof: KernelProof) -> None:
    """Keep what is proved of a kernel, in place of what was before.

    Nothing where the folder cannot be written to: a proof can be made again.
    """
    with suppress(OSError):
        place = _place(corpus, proof.kernel)
        place.parent.mkdir(parents=True, exist_ok=True)
        document = {"format": _FORMAT, "proof": encode(proof)}
        text = json.dumps(document) + "\n"
        replace_file(place, text.encode(), prefix=".new-", sync=False)


def kept_proof(corpus: Path, kernel: str) -> KernelProof | None:
    """Return what was proved of a kernel last, None where nothing is kept."""
    try:
        place = _place(corpus, kernel)
        text = read_plain(place, _MOST_BYTES)
        return value_of(KernelProof, "proof", text, _FORMAT, where=str(place))
    except DecodeError:
        return None


def _place(corpus: Path, kernel: str) -> Path:
    return corpus / _FOLDER / f"{short_hash(kernel)}.json"


# Tensors as safetensors files: https://github.com/huggingface/safetensors#format.
#
# The library reads them; it writes by raw pointers, so the few lines of that are here.

_CODES: Final = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3", "int64": "I64",
    "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
_NAMES: Final = {code: name for name, code in _CODES.items()}
# The format pads its header so that the elements are aligned.
_ALIGNMENT: Final = 8


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file.

    Attributes:
        dtype: a key of `DTYPES`.
        shape: logical sizes.
        data: raw little-endian elements in C order.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def dump(tensors: Mapping[str, StoredTensor]) -> bytes:
    """Return the file that holds the named tensors, in the order given."""
    header: dict[str, Any] = {}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + len(tensor.data)
        header[name] = {
            "dtype": _CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    body = b"".join(tensor.data for tensor in tensors.values())
    return len(text).to_bytes(8, "little") + text + body


def load(data: bytes, *, where: str = "") -> dict[str, StoredTensor]:
    """Read all tensors of a file.

    Raises:
        DecodeError: if header, offsets and length do not fit one another.
    """
    from safetensors import SafetensorError, deserialize

    try:
        return {
            name: StoredTensor(
                _NAMES[entry["dtype"]], tuple(entry["shape"]), bytes(entry["data"])
            )
            for name, entry in deserialize(data)  # type: ignore[no-untyped-call]
        }
    except SafetensorError as error:
        raise DecodeError(f"no safetensors file: {error}", where=where) from None
    except KeyError as error:
        raise DecodeError(f"unknown dtype {error}", where=where) from None


# TOML of a project: what it says, within what a project's file can need.

# Some have a hundred kilobytes; a megabyte takes a second to parse.


def read_toml(file: Path) -> dict[str, Any]:
    """Return what a pyproject.toml says.

    Raises:
        DecodeError: if it cannot be read, or is no TOML.
    """
    where, fix = str(file), "it must be valid TOML"
    text = read_plain(file, _MOST_BYTES, fix=fix)
    try:
        return tomllib.loads(text.decode())
    # TOMLDecodeError and bad UTF-8 too; what nests deeply exhausts the stack.
    except (ValueError, RecursionError) as error:
        what = f"cannot be read: {error}"
        raise DecodeError(what, where=where, fix=fix) from None


# Writes that a kill or a power cut leaves whole or undone.

# A write takes milliseconds; who holds a lock for longer is stuck or stopped.
LOCK_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.01


def digest_of(content: bytes) -> str:
    """Return the SHA-256 by which content is known, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


@contextmanager
def exclusive(folder: Path) -> Iterator[bool]:
    """Hold a folder's lock, which dying releases too; no file is left behind.

    Yields:
        Whether the lock is held: some network file systems have none on folders.

    Raises:
        StorageError: if another process keeps it for `LOCK_SECONDS`.
        OSError: if the folder cannot be opened.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield _locked(handle, folder)
    finally:
        os.close(handle)


def _locked(handle: int, folder: Path) -> bool:
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StorageError(
                    f"another process has been writing here for {LOCK_SECONDS:.0f} s",
                    where=str(folder),
                    fix="end it, or write elsewhere",
                ) from None
            time.sleep(_POLL_SECONDS)
        except OSError:
            return False
        else:
            return True


def write_file(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Write a file, and wait until the disk has it unless asked not to.

    Raises:
        OSError: if the disk refuses.
    """
    with open(path, "wb") as file:
        file.write(content)
        if sync:
            file.flush()
            os.fsync(file.fileno())


def replace_file(path: Path, content: bytes, *, prefix: str, sync: bool = True) -> None:
    """Replace a file at once: readers see the old content or the new.

    Args:
        path: the file, existing or not.
        content: all of it.
        prefix: how the name of the unfinished file beside it begins.
        sync: whether a power cut is to leave it whole, too, and not a kill alone.

    Raises:
        OSError: if the disk refuses; the old content is then still there.
    """
    staged = path.with_name(f"{prefix}{secrets.token_hex(8)}")
    try:
        write_file(staged, content, sync=sync)
        os.replace(staged, path)
    finally:
        staged.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder.

    Raises:
        OSError: if the disk refuses.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
