"""Where what runs learn of a kernel's search is kept from one to the next.

    <cache>/learnt/<hash of the project's path>/<kernel>-<hash of place, backend>.json
    <cache>/learnt/<hash of the project's path>/begun/<id>.json

The first files are what has been learnt so far: a line with what they are of and the
hash of the second line, which is a `Learnt`. A file of the second kind holds what one
run began with, so that its seed and that id draw the same cases again. All are
replaced at once, so that a killed run leaves them whole; what a power cut leaves is
found damaged. All can be thrown away.
"""

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kfuzz.core.codec import decode, encode
from kfuzz.core.errors import DecodeError, UsageError
from kfuzz.core.finding import safe_name, short_hash
from kfuzz.core.fingerprint import version_of
from kfuzz.engine.search.learnt import Learnt
from kfuzz.store import strict_json
from kfuzz.store.cache import cache_folder
from kfuzz.store.durable import exclusive, replace_file

AUTO: Final = "auto"
NONE: Final = "none"
LAST: Final = "last"
# Beginnings that are kept, the newest: of older runs the findings are left.
KEPT: Final = 16
_FORMAT: Final = 1
# How files begin that are half written.
_NEW: Final = ".new-"
_ID_LENGTH: Final = 12


def chosen(
    option: str, *, seeded: bool, root: Path, where: str = ""
) -> tuple[str, bool]:
    """Return the id of what a run begins with, "" for nothing, and whether it adds.

    Args:
        option: "auto" (what earlier runs have learnt, unless a seed is given),
            "none", "last" (what they have, whatever else is given), or an id.
        seeded: whether a seed is given.
        root: the project.
        where: what says so, for the error; "" for the command line.

    Raises:
        UsageError: if an id is not kept.
    """
    if option == NONE or (option == AUTO and seeded):
        return "", False
    store = Store(root)
    if option in (AUTO, LAST):
        return store.begin(), True
    store.begun(option, where=where)
    return option, False


@dataclass(frozen=True)
class Key:
    """What a state is of.

    Attributes:
        name: of the kernel.
        place: its node id.
        backend: where it ran.
        source: of its code.
    """

    name: str
    place: str
    backend: str
    source: str

    @property
    def file(self) -> str:
        """The name of its file."""
        digest = short_hash(f"{self.place} {self.backend}")
        return f"{safe_name(self.name)}-{digest}.json"

    def written(self, learnt: Learnt) -> str:
        """Return the text of a state."""
        body = json.dumps(encode(learnt), allow_nan=False)
        return f"{json.dumps(self._head(body))}\n{body}\n"

    def read(self, text: str) -> Learnt:
        """Return the state that a text holds.

        Raises:
            DecodeError: if it is damaged, or of something else.
        """
        head, _, body = text.partition("\n")
        told = strict_json.loads(head)
        wanted = self._head(body.removesuffix("\n"))
        if not isinstance(told, dict) or told.get("format") != _FORMAT:
            raise DecodeError("another version of kfuzz wrote it")
        if told.get("sha256") != wanted["sha256"]:
            raise DecodeError("it is damaged")
        for field, why in (
            ("kfuzz", "another version of kfuzz wrote it"),
            ("kernel", "it is another kernel's"),
            ("backend", "it is another backend's"),
            ("source", "the kernel's source has changed"),
        ):
            if told.get(field) != wanted[field]:
                raise DecodeError(why)
        return decode(Learnt, strict_json.loads(body))

    def _head(self, body: str) -> dict[str, object]:
        return {
            "format": _FORMAT,
            "kfuzz": version_of("kfuzz"),
            "kernel": self.place,
            "backend": self.backend,
            "source": self.source,
            "sha256": hashlib.sha256(body.encode()).hexdigest(),
        }


class Store:
    """The folder of what was learnt of one project's kernels.

    Args:
        root: the project.
    """

    def __init__(self, root: Path) -> None:
        self._name = short_hash(os.path.realpath(root))

    def add(self, key: Key, learnt: Learnt, *, first: bool) -> None:
        """Add what a run has learnt to what is there; what cannot be read is replaced.

        Args:
            key: the kernel.
            learnt: since the last time.
            first: whether it is the first time of the run.

        Raises:
            OSError: if the disk refuses.
            StorageError: if another process does not let go of the folder.
        """
        folder = self._folder()
        with exclusive(folder):
            before = Learnt()
            with contextlib.suppress(OSError, DecodeError):
                before = key.read(_text(folder / key.file))
            before = before.faded() if first else before
            text = key.written(before.joined(learnt))
            replace_file(folder / key.file, text.encode(), prefix=_NEW, sync=False)

    def begin(self) -> str:
        """Return the id of all that is there now, which is kept; "" if nothing is."""
        try:
            folder = self._folder()
            files = sorted(p for p in folder.glob("*.json") if not p.is_symlink())
            told = {path.name: _text(path) for path in files}
            if not told:
                return ""
            text = json.dumps(told)
            begun = hashlib.sha256(text.encode()).hexdigest()[:_ID_LENGTH]
            kept = self._folder("begun")
            content, file = text.encode(), kept / f"{begun}.json"
            replace_file(file, content, prefix=_NEW, sync=False)
            self._forget(kept)
        except OSError:
            return ""  # it could not be repeated
        return begun

    def begun(self, id: str, *, where: str = "") -> dict[str, str]:
        """Return what was there when a run began, by file.

        Raises:
            UsageError: if it is not kept, or damaged.
        """
        where = where or f"--learnt {id}"
        fix = "without --learnt the seed draws what it draws where nothing was learnt"
        try:
            text = _text(self._folder("begun") / f"{safe_name(id)}.json")
        except OSError:
            raise UsageError(
                "what that run began with is not kept here any more",
                where=where,
                fix=fix,
            ) from None
        if hashlib.sha256(text.encode()).hexdigest()[:_ID_LENGTH] != id:
            raise UsageError(
                "what that run began with is damaged", where=where, fix=fix
            )
        told: dict[str, str] = json.loads(text)
        return told

    def _folder(self, *parts: str) -> Path:
        return cache_folder("learnt", self._name, *parts)

    def _forget(self, kept: Path) -> None:
        newest_first = sorted(
            kept.glob("*.json"), key=lambda p: p.stat().st_mtime, reverse=True
        )
        for path in newest_first[KEPT:]:
            path.unlink(missing_ok=True)


def _text(path: Path) -> str:
    """Return the text of a file; what is no text is replaced, and so found damaged."""
    return path.read_bytes().decode(errors="replace")
