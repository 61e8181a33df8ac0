"""Files that others wrote or put there, read with care.

A pipe would keep a reader waiting, a device never ends, and what is too large fills the
memory or takes minutes to parse.
"""

import os
import stat
from pathlib import Path
from typing import Final

from kfuzz.core.errors import DecodeError

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
        linked = not follow and path.is_symlink()
        raise DecodeError(
            "is a link, which is not followed"
            if linked
            else f"cannot be read: {reason}",
            where=where,
            fix=fix,
        ) from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise DecodeError("is not a plain file", where=where, fix=fix)
        if status.st_size > most:
            raise DecodeError(
                f"{status.st_size} bytes are more than it can need, which is at most "
                f"{most}",
                where=where,
                fix=fix,
            )
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
