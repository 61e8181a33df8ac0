"""Files that are asked for on the command line: checked before, written whole after."""

import os
import stat
import tempfile
from pathlib import Path

from kfuzz.core.errors import HarnessError, UsageError
from kfuzz.store.durable import replace_file


def require_writable(path: Path, *, where: str, with_folder: bool = False) -> None:
    """Check, before the work is done, that a file can be written.

    Args:
        path: the file, existing or not; a link is followed.
        where: as the user wrote it.
        with_folder: whether to make its folder where it is not there.

    Raises:
        UsageError: if it is a folder, or nothing can be written there.
    """
    place = Path(os.path.realpath(path))
    try:
        if place.is_dir():
            raise UsageError("is a folder", where=where, fix="name a file in it")
        if _is_special(place):
            return
        if with_folder and not place.parent.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place.parent):
            pass
        if place.exists():
            with open(place, "ab"):
                pass
    except OSError as error:
        raise UsageError(
            f"cannot be written here: {error.strerror}",
            where=where,
            fix="name a file in a folder that exists and can be written",
        ) from None


def write(path: Path, text: str) -> None:
    """Write a file at once; a link is followed, a device or pipe written to.

    Raises:
        OSError: if it is refused; what a plain file held is then still there.
    """
    place = Path(os.path.realpath(path))
    content = text.encode(errors="backslashreplace")
    if _is_special(place):
        with open(place, "wb") as out:
            out.write(content)
        return
    replace_file(place, content, prefix=f".{place.name[:64]}.")


def write_new(path: Path, text: str) -> None:
    """Write a file that is not there yet, or leave none.

    Raises:
        FileExistsError: if it is there.
        OSError: if it is refused.
    """
    file = path.open("x", encoding="utf-8")
    try:
        with file:
            file.write(text)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def write_or_raise(path: Path, text: str) -> None:
    """Write a file as `write` does.

    Raises:
        HarnessError: naming the file, if it is refused.
    """
    try:
        write(path, text)
    except OSError as error:
        raise HarnessError(
            f"cannot be written: {error.strerror or error}", where=str(path)
        ) from None


def _is_special(path: Path) -> bool:
    """Whether a path is there and no plain file: a device, a pipe."""
    return path.exists() and not stat.S_ISREG(path.stat().st_mode)
