"""The folder in which kfuzz keeps what can be had again: built kernels, mirrors."""

import os
import tempfile
from pathlib import Path
from typing import Final

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
