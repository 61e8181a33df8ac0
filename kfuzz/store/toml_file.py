"""TOML of a project: what it says, within what a project's file can need."""

import tomllib
from pathlib import Path
from typing import Any, Final

from kfuzz.core.errors import DecodeError
from kfuzz.store.plain_file import read_plain

# Some have a hundred kilobytes; a megabyte takes a second to parse.
_MOST_BYTES: Final = 1 << 20


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
