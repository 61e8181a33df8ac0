"""TOML of a project: what it says, within what a project's file can need."""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

from kfuzz.core.errors import DecodeError
from kfuzz.store.plain_file import read_plain

# Some have a hundred kilobytes; a megabyte takes a second to parse.
_MOST_BYTES: Final = 1 << 20
# tomllib takes time and memory that grow with the square of a dotted key's parts.
_MOST_PARTS: Final = 32
_NO_PART: Final = re.compile(r"[\s=,\[\]{}#]")


def read_toml(file: Path) -> dict[str, Any]:
    """Return what a pyproject.toml says.

    Raises:
        DecodeError: if it cannot be read, or is no TOML.
    """
    where, fix = str(file), "it must be valid TOML"
    text = read_plain(file, _MOST_BYTES, fix=fix)
    try:
        said = text.decode()
        if _nests(said):
            what = f"cannot be read: a key of more than {_MOST_PARTS} parts"
            raise DecodeError(what, where=where, fix=fix)
        return tomllib.loads(said)
    # TOMLDecodeError and bad UTF-8 too; what nests deeply exhausts the stack.
    except (ValueError, RecursionError) as error:
        what = f"cannot be read: {error}"
        raise DecodeError(what, where=where, fix=fix) from None


def _nests(text: str) -> bool:
    """Whether a key may have more parts than any project's."""
    for line in text.split("\n"):
        parts = 0
        for piece in line.split("."):
            inner = piece.strip()
            parts = parts + 1 if inner and not _NO_PART.search(inner) else 0
            if parts > _MOST_PARTS:
                return True
    return False
