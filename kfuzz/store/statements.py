"""Statements and calibrations as files: what others wrote, read with care."""

from pathlib import Path
from typing import Any, Final, TypeVar

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
    document = read_document(path, "`kfuzz grade --json FILE` writes one")
    return _part(Statement, document, "statement", path)


def read_calibration(path: Path) -> Calibration:
    """Return the calibration that `kfuzz calibrate --format json` printed.

    Raises:
        DecodeError: if the file cannot be read, or holds no calibration of this
            format; names the field.
    """
    fix = "`kfuzz calibrate --format json >FILE` writes one"
    document = read_document(path, fix)
    return _part(Calibration, document, "calibration", path)


def _part(kind: type[T], document: dict[str, Any], name: str, path: Path) -> T:
    if name not in document:
        raise DecodeError(f"holds no {name}", where=str(path))
    try:
        return decode(kind, document[name], name)
    except DecodeError as error:
        place = f"{path}: {error.where}" if error.where else str(path)
        raise DecodeError(error.what, where=place, fix=error.fix) from None


def read_document(path: Path, fix: str) -> dict[str, Any]:
    """Return a JSON object of the known format.

    Args:
        path: the file.
        fix: how one comes by such a file.

    Raises:
        DecodeError: if the file cannot be read, is no JSON object, or is of
            another format.
    """
    text = read_plain(path, _MOST_BYTES, fix=fix)
    document = strict_json.loads(text, where=str(path))
    if not isinstance(document, dict):
        raise DecodeError("is no JSON object", where=str(path), fix=fix)
    if document.get("format") != FORMAT:
        raise DecodeError(
            f"format {document.get('format')!r:.20} is not known",
            where=str(path),
            fix=f"this kfuzz reads format {FORMAT}",
        )
    return document
