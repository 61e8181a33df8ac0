"""The corpus: findings on disk, one folder each, safe against kills and strangers.

    <root>/<kernel>/<class>-<8 hex of bucket>/     finding.json and its companions

Whatever happens to a writer, a reader finds every entry in its old or its new
form. A new entry is written in a folder of its own and renamed into place. An
existing one is committed by replacing finding.json: inputs that belong to the new
one wait beside it under the name of their hash, where `kfuzz.store.entry` looks for
them, until they have replaced the old. A change of id then renames the folder.
Writers take turns by a lock on the root.
"""

import difflib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kfuzz.core.errors import DecodeError, StorageError, UsageError
from kfuzz.core.finding import Finding, Target, renamed, safe_name
from kfuzz.core.verdict import State
from kfuzz.store.entry import (
    FINDING,
    STAGED,
    UNFINISHED,
    files_of,
    read_entry,
    remove_entry,
    update_entry,
    write_entry,
)
from kfuzz.store.files import UnknownFormatError, exclusive, is_mirror, sync_folder
from kfuzz.store.life import merged, with_marks

if TYPE_CHECKING:  # it is for URLs alone
    from kfuzz.store.mirror import Mirror

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
        mirror: writes on a URL what is written here, where this is one's mirror.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mirror: Mirror | None = None
        if is_mirror(root):
            from kfuzz.store import mirror  # it transfers by what an extra brings

            self.mirror = mirror.Mirror(self)
        self._tidied = False
        # Threads take turns even where the file system has no locks.
        self._turn = threading.Lock()

    def require_writable(self) -> None:
        """Check that findings can be stored, and leave nothing behind.

        Raises:
            UsageError: if the folder, or the one it will be made in, is read-only.
            StorageError: if it is on a URL, and the server refuses.
        """
        folder = self.root
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        if not folder.is_dir():
            fix = "choose another folder with --corpus"
            raise UsageError("is not a folder", where=str(folder), fix=fix)
        try:
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            what = f"findings cannot be stored here: {error.strerror}"
            fix = "choose another folder with --corpus, or mend this one"
            raise UsageError(what, where=str(self.root), fix=fix) from None
        if self.mirror is not None:
            self.mirror.require_writable()

    def save(self, finding: Finding) -> Path:
        """Store a finding in its folder, replacing what that folder held.

        Returns:
            The folder. Once this returns, the finding survives a power cut.

        Raises:
            StorageError: if the disk refuses; what was stored before is still there.
            HarnessError: if the folder holds an entry of an unknown format.
        """
        with self.writing(finding.folder):
            return write_entry(self.root, self.root / finding.folder, finding)

    def replace(self, old: Finding, new: Finding) -> Path:
        """Store a finding in place of an earlier form of it.

        Where its id has changed, the folder moves with it. Where the corpus
        already knows the new id, the two entries become one (see `merged`). Marks
        that it got meanwhile stay.

        Returns:
            The folder of the new form.

        Raises:
            StorageError, HarnessError: as for `save`.
        """
        source, goal = self.root / old.folder, self.root / new.folder
        with self.writing(old.folder, new.folder):
            held = self.get(old)
            if held is not None:
                new = renamed(with_marks(new, held.finding), held.finding)
            new = renamed(new, old)
            if source == goal:
                return write_entry(self.root, goal, new)
            known = self.get(new)
            if known is not None:
                new = merged(known.finding, new)
            if not source.is_dir():
                return write_entry(self.root, goal, new)
            if goal.exists():
                write_entry(self.root, goal, new)
                remove_entry(self.root, source)
                return goal
            write_entry(self.root, source, new)
            goal.parent.mkdir(exist_ok=True)
            os.rename(source, goal)
            sync_folder(goal.parent)
            return goal

    def change(
        self, finding: Finding, to: Callable[[Finding | None], Finding | None]
    ) -> Finding | None:
        """Change what the corpus holds under a finding's id, alone at it.

        Args:
            finding: has the id.
            to: takes what is stored, None where nothing is that can be read; returns
                what is to be stored under the same id, None for nothing.

        Returns:
            What `to` returned.

        Raises:
            StorageError, HarnessError: as for `save`.
        """
        with self.writing(finding.folder):
            known = self.get(finding)
            new = to(known.finding if known else None)
            if new is None and known is not None:
                remove_entry(self.root, known.path)
            elif new is not None and (known is None or new != known.finding):
                write_entry(self.root, self.root / finding.folder, new)
            return new

    def marks(self, kernel: str = "") -> list[Finding]:
        """Return the known findings, of one kernel where it is named."""
        stored = (e.finding for e in self.entries(kernel) if isinstance(e, Stored))
        return [finding for finding in stored if finding.state is State.KNOWN]

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
            id: an id, one that a finding had before it was shrunk further, the
                beginning of just one, or the path to an entry's
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
        former: dict[str, Stored] = {}
        for entry in self.entries():
            entries[self._id_of(entry)] = entry
            if isinstance(entry, Stored):
                former |= dict.fromkeys(entry.finding.former, entry)
        if id not in entries and id in former:
            return former[id]
        ids = [id] if id in entries else [i for i in entries if i.startswith(id)]
        if id and len(ids) == 1:
            found = entries[ids[0]]
            if isinstance(found, Problem):
                raise DecodeError(found.what)
            return found
        if id and ids:
            what = f"{id!r} is the beginning of {len(ids)} ids"
            fix = f"give more of one: {', '.join(ids[:_NEAR])}"
            raise UsageError(what, where=str(self.root), fix=fix)
        near = difflib.get_close_matches(id, entries, n=_NEAR, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        fix = f"{hint}`kfuzz corpus list` names all {len(entries)}"
        raise UsageError(f"no finding {id!r}", where=str(self.root), fix=fix)

    def entries(self, kernel: str = "") -> Iterator[Stored | Problem]:
        """Yield every entry, readable or not, sorted by kernel and folder.

        Args:
            kernel: name of the kernel whose entries are wanted; "" for all.

        Raises:
            UsageError: if the root is there but cannot be listed.
        """
        for path in self.folders(kernel):
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

    def homes(self, kernel: str) -> list[Target]:
        """Return where the entries of a kernel's name say that it lives, each once.

        Raises:
            UsageError: as for `entries`.
        """
        found = self.entries(kernel)
        homes = (each.finding.target for each in found if isinstance(each, Stored))
        return list(dict.fromkeys(homes))

    def repair(self) -> list[str]:
        """Finish or clear away what killed writers left; move misplaced entries.

        Entries that cannot be read are left alone.

        Returns:
            What was done, one line each.

        Raises:
            StorageError: if a repair fails.
        """
        if not self.root.is_dir():
            return []
        self._tidied = True  # not twice
        with self.writing() as alone:
            if not alone:
                return ["nothing: another writer may be at work, which has no lock"]
            return self._tidy(alone)

    def check(self) -> list[Problem]:
        """Return everything in the corpus that is not as it should be."""
        problems = []
        for entry in self.entries():
            if isinstance(entry, Problem):
                problems.append(entry)
            elif entry.path != self.root / entry.finding.folder:
                what = f"{entry.path}: its name should be {entry.finding.folder}"
                problems.append(Problem(entry.path, what, ProblemKind.MISPLACED))
        known = {problem.path for problem in problems}
        for path in self.folders():
            if path not in known and not os.path.lexists(path / FINDING):
                what = f"{path / FINDING}: the file is missing"
                problems.append(Problem(path, what, ProblemKind.DAMAGED))
        for name, what in self.mirror.check() if self.mirror else ():
            problems.append(Problem(self.root / name, what, ProblemKind.DAMAGED))
        for path in self._leftovers():
            what = f"{path}: left by a writer that was killed"
            problems.append(Problem(path, what, ProblemKind.LEFTOVER))
        return sorted(problems, key=lambda p: (p.path, p.kind))

    def _id_of(self, entry: Stored | Problem) -> str:
        if isinstance(entry, Stored):
            return entry.finding.id
        return "-".join(entry.path.relative_to(self.root).parts)

    def folders(self, kernel: str = "") -> list[Path]:
        """Return the folders in the place of entries, whatever they hold, sorted.

        Raises:
            UsageError: as for `entries`.
        """
        try:
            if not self.root.exists():
                return []
            if kernel and self.root.is_dir():  # not all of a large corpus
                named = self.root / safe_name(kernel)
                kernels = [named] if named.is_dir() else []
            else:
                kernels = sorted(_subfolders(self.root))
            found = []
            for folder in kernels:
                with suppress(FileNotFoundError):  # its last finding has just gone
                    found += sorted(_subfolders(folder))
            return found
        except OSError as error:
            where = str(error.filename or self.root)
            what = f"cannot be listed: {error.strerror}"
            raise UsageError(what, where=where, fix="--corpus names a folder") from None

    def _leftovers(self) -> list[Path]:
        staged = [p for f in self.folders() for p in f.glob(STAGED + "*")]
        return sorted(self.root.glob(UNFINISHED + "*")) + staged

    @contextmanager
    def writing(self, *changed: str) -> Iterator[bool]:
        """Hold the lock; yields whether it keeps other writers out.

        Network file systems may lack locks on folders: then writers are still
        safe from one another as long as they do not write the same entry.

        Args:
            changed: folders below the root whose entries may change.

        Raises:
            StorageError: if the disk refuses.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with self._turn, exclusive(self.root) as alone:
                if not self._tidied:
                    self._tidied = True
                    self._tidy(alone)
                yield alone
        except OSError as error:
            where = str(error.filename or self.root)
            what = f"cannot be written: {error.strerror or error}"
            fix = "nothing is lost; free some space or name another --corpus"
            raise StorageError(what, where=where, fix=fix) from None
        if changed and self.mirror is not None:
            self.mirror.send(changed)

    def _tidy(self, alone: bool) -> list[str]:
        """Finish or clear away what killed writers left; return what was done."""
        done: list[str] = []
        if not alone:
            return done  # what looks left may be another writer's
        for path in self.root.glob(UNFINISHED + "*"):
            shutil.rmtree(path, ignore_errors=True)
            done.append(f"removed {path}: left by a writer that was killed")
        for entry in list(self.entries()):
            if isinstance(entry, Problem):
                continue
            staged = list(entry.path.glob(STAGED + "*"))
            if staged:
                update_entry(entry.path, files_of(entry.finding))
                done.append(f"finished {entry.path}: its writer was killed")
            for path in staged:
                path.unlink(missing_ok=True)
            goal = self.root / entry.finding.folder
            if entry.path == goal:
                continue
            if not os.path.lexists(goal):
                goal.parent.mkdir(exist_ok=True)
                os.rename(entry.path, goal)
                done.append(f"moved {entry.path} to {goal}")
            elif (known := self.get(entry.finding)) is not None:
                write_entry(self.root, goal, merged(known.finding, entry.finding))
                remove_entry(self.root, entry.path)
                done.append(f"merged {entry.path} into {goal}")
        return done


def _subfolders(folder: Path) -> list[Path]:
    with os.scandir(folder) as items:
        return [
            Path(item.path)
            for item in items
            if not item.name.startswith(".") and item.is_dir()
        ]
