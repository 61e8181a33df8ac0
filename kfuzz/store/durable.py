"""Writes that a kill or a power cut leaves whole or undone."""

import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kfuzz.core.errors import StorageError

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
    """Write a file, and wait until the disk has it unless told not to.

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
