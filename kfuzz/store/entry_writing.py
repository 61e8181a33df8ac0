"""Writing, replacing and removing one entry of a corpus, whole or not at all."""

import errno
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from kfuzz.core.errors import DecodeError, HarnessError
from kfuzz.core.finding import Finding
from kfuzz.store.durable import replace_file, sync_folder, write_file
from kfuzz.store.entry import (
    FINDING,
    FIRST,
    INPUTS,
    STAGED,
    files_of,
    read_entry,
    staged_name,
)
from kfuzz.store.strict_json import UnknownFormatError
from kfuzz.store.trust import unsafe_reference

# How folders in the root begin that are no kernel's: entries half written or removed.
UNFINISHED: Final = ".tmp-"


def write_entry(root: Path, place: Path, finding: Finding) -> Path:
    """Write an entry, in place of what its folder held; return the folder.

    Args:
        root: the corpus, whose lock the caller holds.
        place: the entry's folder.
        finding: what it is to hold.

    Raises:
        HarnessError: if the finding or the folder is not to be trusted, or the folder
            holds an entry of an unknown format.
        OSError: if the disk refuses; what was stored before is still there.
    """
    if problem := unsafe_reference(finding):
        raise HarnessError(problem[1], where=f"{finding.id}: {problem[0]}")
    if place.is_symlink() or place.parent.is_symlink():
        raise HarnessError("is a link, which is not followed", where=str(place))
    files = files_of(finding)
    if place.is_dir():
        update_entry(place, files)
    else:
        _create(root, place, files)
    return place


def update_entry(place: Path, files: dict[str, bytes]) -> None:
    """Replace the files of an entry; what commits them is finding.json.

    Raises:
        HarnessError, OSError: as `write_entry`.
    """
    try:
        read_entry(place)
    except UnknownFormatError as error:
        raise HarnessError(
            f"will not be overwritten: {error.what}", where=str(place), fix=error.fix
        ) from None
    except DecodeError:
        pass  # a damaged entry of the same bucket: this one heals it
    replace_file(place / FIRST, files[FIRST], prefix=STAGED)
    inputs = files.get(INPUTS)
    if inputs is not None:
        staged = place / staged_name(inputs)
        write_file(staged, inputs)
    replace_file(place / FINDING, files[FINDING], prefix=STAGED)
    sync_folder(place)
    if inputs is not None:
        os.replace(staged, place / INPUTS)
    else:
        (place / INPUTS).unlink(missing_ok=True)
    sync_folder(place)


def remove_entry(root: Path, place: Path) -> None:
    """Remove an entry, and its kernel's folder if that is empty then.

    Raises:
        OSError: if the disk refuses.
    """
    # Renamed first: a folder half removed must not look like an entry.
    doomed = root / f"{UNFINISHED}{secrets.token_hex(8)}"
    os.rename(place, doomed)
    shutil.rmtree(doomed, ignore_errors=True)
    with suppress(OSError):  # it holds something else
        place.parent.rmdir()


def _create(root: Path, place: Path, files: dict[str, bytes]) -> None:
    unfinished = root / f"{UNFINISHED}{secrets.token_hex(8)}"
    unfinished.mkdir()
    try:
        for name, content in files.items():
            write_file(unfinished / name, content)
        sync_folder(unfinished)
        place.parent.mkdir(exist_ok=True)
        try:
            os.rename(unfinished, place)
        except OSError as error:
            # Only where locks are missing: another writer was faster.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            update_entry(place, files)
        sync_folder(place.parent)
        sync_folder(root)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
