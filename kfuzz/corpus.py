"""The corpus: findings on disk, one folder each, safe against kills and strangers.

    <root>/<kernel>/<class>-<8 hex of bucket>/     finding.json and its companions

Whatever happens to a writer, a reader finds every entry in its old or its new
form. A new entry is written in a folder of its own and renamed into place. An
existing one is committed by replacing finding.json: inputs that belong to the new
one wait beside it under the name of their hash, where `kfuzz.entry` looks for
them, until they have replaced the old. A change of id then renames the folder.
Writers take turns by a lock on the root.
"""

import difflib
import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from kfuzz.core.durable import exclusive, replace_file, sync_folder, write_file
from kfuzz.core.errors import DecodeError, HarnessError, UsageError
from kfuzz.core.finding import Finding, merged
from kfuzz.entry import (
    FINDING,
    FIRST,
    INPUTS,
    STAGED,
    UnknownFormatError,
    files_of,
    read_entry,
    staged_name,
    unsafe_reference,
)

_UNFINISHED: Final = ".tmp-"
# Near ids shown where one is not found.
_NEAR: Final = 3


class ProblemKind(StrEnum):
    """What is wrong with a place in the corpus."""

    FORMAT = "format"
    DAMAGED = "damaged"
    MISPLACED = "misplaced"
    LEFTOVER = "leftover"


@dataclass(frozen=True)
class Stored:
    """A finding and the folder that holds it."""

    finding: Finding
    path: Path


@dataclass(frozen=True)
class Problem:
    """A place in the corpus that cannot be used as it is.

    Attributes:
        path: the folder concerned.
        what: one line with file, field and remedy.
        kind: "format" (newer than this version: skipped, never touched),
            "damaged" (skipped, never deleted), "misplaced" (loads, but its
            folder does not bear its name) or "leftover" (of a killed writer).
    """

    path: Path
    what: str
    kind: ProblemKind


class Corpus:
    """A folder of findings.

    Attributes:
        root: the folder; made by the first save.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._tidied = False

    def require_writable(self) -> None:
        """Check that findings can be stored, and leave nothing behind.

        Raises:
            HarnessError: if the folder, or the one it will be made in, refuses.
        """
        folder = self.root
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        try:
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise HarnessError(
                f"findings cannot be stored here: {error.strerror}",
                where=str(self.root),
                fix="choose another folder with --corpus, or mend this one",
            ) from None

    def save(self, finding: Finding) -> Path:
        """Store a finding in its folder, replacing what that folder held.

        Returns:
            The folder. Once this returns, the finding survives a power cut.

        Raises:
            HarnessError: if the disk refuses, or the folder holds an entry of
                an unknown format; what was stored before is still there.
        """
        with self._writing():
            return self._write(self.root / finding.folder, finding)

    def replace(self, old: Finding, new: Finding) -> Path:
        """Store a finding in place of an earlier form of it.

        Where its id has changed, the folder moves with it. Where the corpus
        already knows the new id, the two entries become one (see `merged`).

        Returns:
            The folder of the new form.

        Raises:
            HarnessError: as for `save`.
        """
        source, goal = self.root / old.folder, self.root / new.folder
        if source == goal:
            return self.save(new)
        with self._writing():
            known = self.get(new)
            if known is not None:
                new = merged(known.finding, new)
            if not source.is_dir():
                return self._write(goal, new)
            if goal.exists():
                self._write(goal, new)
                self._remove(source)
                return goal
            self._write(source, new)
            goal.parent.mkdir(exist_ok=True)
            os.rename(source, goal)
            sync_folder(goal.parent)
            return goal

    def get(self, finding: Finding) -> Stored | None:
        """Return what the corpus holds under a finding's id, if it can be read."""
        path = self.root / finding.folder
        try:
            return Stored(read_entry(path), path)
        except DecodeError:
            return None

    def find(self, id: str) -> Stored:
        """Return the entry with this id.

        Args:
            id: an id, the beginning of just one, or the path to an entry's
                folder or finding.json, inside the corpus or elsewhere.

        Raises:
            UsageError: if none or several fit; names the nearest.
            DecodeError: if it is there but cannot be read.
        """
        path = Path(id)
        if path.name == FINDING and os.path.isfile(path):
            path = path.parent
        if id and os.path.isfile(path / FINDING):
            return Stored(read_entry(path), path)
        entries: dict[str, Stored | Problem] = {}
        for entry in self.entries():
            entries[self._id_of(entry)] = entry
        ids = [id] if id in entries else [i for i in entries if i.startswith(id)]
        if id and len(ids) == 1:
            found = entries[ids[0]]
            if isinstance(found, Problem):
                raise DecodeError(found.what)
            return found
        if id and ids:
            raise UsageError(
                f"{id!r} is the beginning of {len(ids)} ids",
                where=str(self.root),
                fix=f"give more of one: {', '.join(ids[:_NEAR])}",
            )
        near = difflib.get_close_matches(id, entries, n=_NEAR, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise UsageError(
            f"no finding {id!r}",
            where=str(self.root),
            fix=f"{hint}`kfuzz corpus list` names all {len(entries)}",
        )

    def entries(self) -> Iterator[Stored | Problem]:
        """Yield every entry, readable or not, sorted by kernel and folder.

        Raises:
            UsageError: if the root is there but cannot be listed.
        """
        for path in self._folders():
            try:
                if path.is_symlink() or path.parent.is_symlink():
                    raise DecodeError("is a link, which is not followed")
                if not os.path.lexists(path / FINDING):
                    continue  # not an entry; `check` says so
                yield Stored(read_entry(path), path)
            except UnknownFormatError as error:
                yield Problem(path, str(error), ProblemKind.FORMAT)
            except DecodeError as error:
                if path.exists():  # else a writer has moved it
                    what = str(error) if error.where else f"{path}: {error}"
                    yield Problem(path, what, ProblemKind.DAMAGED)

    def check(self, *, repair: bool = False) -> list[Problem]:
        """Return everything in the corpus that is not as it should be.

        Args:
            repair: first finish or clear away what killed writers left, and
                give misplaced entries their place. Entries that cannot be read
                are left alone.

        Raises:
            HarnessError: if a repair fails.
        """
        if repair and self.root.is_dir():
            self._tidied = True  # not twice
            with self._writing() as alone:
                self._tidy(alone)
        problems = []
        for entry in self.entries():
            if isinstance(entry, Problem):
                problems.append(entry)
            elif entry.path != self.root / entry.finding.folder:
                what = f"{entry.path}: its name should be {entry.finding.folder}"
                problems.append(Problem(entry.path, what, ProblemKind.MISPLACED))
        for path in self._folders():
            if not os.path.lexists(path / FINDING):
                what = f"{path / FINDING}: the file is missing"
                problems.append(Problem(path, what, ProblemKind.DAMAGED))
        for path in self._leftovers():
            what = f"{path}: left by a writer that was killed"
            problems.append(Problem(path, what, ProblemKind.LEFTOVER))
        return sorted(problems, key=lambda p: (p.path, p.kind))

    def _id_of(self, entry: Stored | Problem) -> str:
        if isinstance(entry, Stored):
            return entry.finding.id
        return "-".join(entry.path.relative_to(self.root).parts)

    def _folders(self) -> list[Path]:
        try:
            if not self.root.exists():
                return []
            kernels = sorted(_subfolders(self.root))
            return [path for kernel in kernels for path in sorted(_subfolders(kernel))]
        except OSError as error:
            raise UsageError(
                f"cannot be listed: {error.strerror}",
                where=str(error.filename or self.root),
                fix="--corpus names a folder",
            ) from None

    def _leftovers(self) -> list[Path]:
        staged = [p for f in self._folders() for p in f.glob(STAGED + "*")]
        return sorted(self.root.glob(_UNFINISHED + "*")) + staged

    @contextmanager
    def _writing(self) -> Iterator[bool]:
        """Hold the lock; yields whether it keeps other writers out.

        Network file systems may lack locks on folders: then writers are still
        safe from one another as long as they do not write the same entry.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with exclusive(self.root) as alone:
                if not self._tidied:
                    self._tidied = True
                    self._tidy(alone)
                yield alone
        except OSError as error:
            raise HarnessError(
                f"cannot be written: {error.strerror or error}",
                where=str(error.filename or self.root),
                fix="nothing stored before is lost; make room or choose another "
                "folder with --corpus",
            ) from None

    def _write(self, place: Path, finding: Finding) -> Path:
        if problem := unsafe_reference(finding):
            raise HarnessError(problem[1], where=f"{finding.id}: {problem[0]}")
        if place.is_symlink() or place.parent.is_symlink():
            raise HarnessError("is a link, which is not followed", where=str(place))
        files = files_of(finding)
        if place.is_dir():
            self._update(place, files)
        else:
            self._create(place, files)
        return place

    def _create(self, place: Path, files: dict[str, bytes]) -> None:
        unfinished = self.root / f"{_UNFINISHED}{secrets.token_hex(8)}"
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
                self._update(place, files)
            sync_folder(place.parent)
            sync_folder(self.root)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def _update(self, place: Path, files: dict[str, bytes]) -> None:
        try:
            read_entry(place)
        except UnknownFormatError as error:
            raise HarnessError(
                f"will not be overwritten: {error.what}",
                where=str(place),
                fix=error.fix,
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

    def _remove(self, place: Path) -> None:
        # Renamed first: a folder half removed must not look like an entry.
        doomed = self.root / f"{_UNFINISHED}{secrets.token_hex(8)}"
        os.rename(place, doomed)
        shutil.rmtree(doomed, ignore_errors=True)

    def _tidy(self, alone: bool) -> None:
        """Finish or clear away what killed writers left."""
        if not alone:
            return  # what looks left may be another writer's
        for path in self.root.glob(_UNFINISHED + "*"):
            shutil.rmtree(path, ignore_errors=True)
        for entry in list(self.entries()):
            if isinstance(entry, Problem):
                continue
            staged = list(entry.path.glob(STAGED + "*"))
            if staged:
                self._update(entry.path, files_of(entry.finding))
            for path in staged:
                path.unlink(missing_ok=True)
            goal = self.root / entry.finding.folder
            if entry.path == goal:
                continue
            if not os.path.lexists(goal):
                goal.parent.mkdir(exist_ok=True)
                os.rename(entry.path, goal)
            elif (known := self.get(entry.finding)) is not None:
                self._write(goal, merged(known.finding, entry.finding))
                self._remove(entry.path)


def _subfolders(folder: Path) -> list[Path]:
    with os.scandir(folder) as items:
        return [
            Path(item.path)
            for item in items
            if not item.name.startswith(".") and item.is_dir()
        ]
