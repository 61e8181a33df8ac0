"""Statements and calibrations as files: what others wrote, read with care."""

from pathlib import Path
from typing import Final, TypeVar

from kfuzz.core.calibration import Calibration
from kfuzz.core.codec import decode
from kfuzz.core.errors import DecodeError
from kfuzz.core.statement import Statement
from kfuzz.store import strict_json
from kfuzz.store.plain_file import read_plain

T = TypeVar("T")

FORMAT: Final = 1
# A statement of every kernel of a platform has some hundred kilobytes.
_MOST_BYTES: Final = 64 << 20


def read_statement(path: Path) -> Statement:
    """Return the statement in a file that `kfuzz grade` wrote.

    Raises:
        DecodeError: if the file cannot be read, or holds no statement of this
            format; names the field.
    """
    fix = "`kfuzz grade --json FILE` writes one"
    return _read(Statement, "statement", path, fix)


def read_calibration(path: Path) -> Calibration:
    """Return the calibration that `kfuzz calibrate --format json` printed.

    Raises:
        DecodeError: if the file cannot be read, or holds no calibration of this
            format; names the field.
    """
    fix = "`kfuzz calibrate --format json >FILE` writes one"
    return _read(Calibration, "calibration", path, fix)


def _read(kind: type[T], name: str, path: Path, fix: str) -> T:
    where = str(path)
    text = read_plain(path, _MOST_BYTES, fix=fix)
    parsed = strict_json.loads(text, where=where)
    parsed = strict_json.document(parsed, FORMAT, where=where, fix=fix)
    if name not in parsed:
        raise DecodeError(f"holds no {name}", where=where, fix=fix)
    return decode(kind, parsed[name], f"{path}: {name}")
