"""The corpus: findings on disk, one folder each, safe against kills and strangers.

    <root>/<kernel>/<class>-<8 hex of bucket>/     finding.json and its companions

Whatever happens to a writer, a reader finds every entry in its old or its new
form. A new entry is written in a folder of its own and renamed into place. An
existing one is committed by replacing finding.json: inputs that belong to the new
one wait beside it under the name of their hash, where `kfuzz.store.corpus` looks for
them, until they have replaced the old. A change of id then renames the folder.
Writers take turns by a lock on the root.
"""

import base64
import contextlib
import difflib
import errno
import os
import re
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from kfuzz.core.codec import INLINE_ELEMENTS, decode, encode
from kfuzz.core.errors import DecodeError, HarnessError, StorageError, UsageError
from kfuzz.core.finding import Finding, Mark, Target, renamed, safe_name
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Signature, State
from kfuzz.store import files as strict_json
from kfuzz.store import files as tensorfile
from kfuzz.store.files import (
    MissingError,
    StoredTensor,
    UnknownFormatError,
    digest_of,
    exclusive,
    is_mirror,
    read_plain,
    replace_file,
    sync_folder,
    write_file,
)
from kfuzz.store.life import merged, with_marks

if TYPE_CHECKING:
    from kfuzz.store.mirror import Mirror


# One entry of the corpus: a finding as three files, and back.
#
#     finding.json         "format" first; the finding but for `first`; values of
#                          more than `INLINE_ELEMENTS` elements only by reference
#     inputs.safetensors   elements of every pinned tensor of the minimal case
#     first.json           the case as first found
#
# `finding.json` names the inputs by their hash, so that replacing it is what
# commits a change of both; see `kfuzz.store.corpus`.

# What a finding may call things: strangers write findings too.


def unsafe_reference(finding: Finding) -> tuple[str, str] | None:
    """Return (field, why) where a name or path must not be trusted."""
    target, signature = finding.target, finding.signature
    path = PurePosixPath(target.file)
    if path.is_absolute() or ".." in path.parts or "\\" in target.file:
        return "target.file", (
            f"{target.file!r:.80} leads outside the project; it must be relative"
        )
    parts = target.module.split(".") if target.module else []
    if not all(part.isidentifier() for part in parts):
        return "target.module", f"{target.module!r:.80} is not a dotted module name"
    mark = finding.mark or Mark("")
    if mark.link and not mark.link.startswith(("http://", "https://")):
        return "mark.link", f"{mark.link!r:.80} is no http or https address"
    claims = finding.declaration
    return _unprintable(
        (
            *_texts(target, "target"),
            *_texts(signature, "signature"),
            *_texts(mark, "mark"),
            ("failure.output", finding.failure.output),
            *_names_of(finding.case, "case"),
            *_names_of(finding.first, "first"),
            *(("declaration.inplace", name) for name in claims.inplace),
            *(("declaration.out", name) for name in claims.out),
            *(("declaration.configs", n) for c in claims.configs for n in c),
        )
    )


def _unprintable(texts: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
    """Return the first (field, why) of texts that more than print, as ends of lines."""
    for field, text in texts:
        if not text.isprintable():
            return field, f"{text!r:.80} holds control characters"
    return None


def _texts(owner: Target | Signature | Mark, label: str) -> list[tuple[str, str]]:
    found = vars(owner).items()
    return [(f"{label}.{k}", v) for k, v in found if isinstance(v, str)]


def _names_of(case: Case, label: str) -> Iterator[tuple[str, str]]:
    """Return what a case calls its parts: one line each, whatever that is written in.

    They need not be identifiers: an operator names its arguments and results as it
    likes.
    """
    for name, spec in case.tensors.items():
        yield f"{label}.tensors", name
        yield f"{label}.tensors.below", spec.below
        yield f"{label}.tensors.domain", spec.domain
        for axis in spec.axes:
            yield f"{label}.tensors.axes", axis
    for name in case.scalars:
        yield f"{label}.scalars", name
    for name in case.destinations:
        yield f"{label}.destinations", name


FORMAT: Final = 1
FINDING: Final = "finding.json"
INPUTS: Final = "inputs.safetensors"
FIRST: Final = "first.json"
STAGED: Final = ".staged-"

# Two pinned operands of the largest budget (2^22 float64) as base64 need 90 MB;
# what is far beyond is hostile, and reading it would only fill the memory.
MAX_BYTES: Final = 1 << 29
# Between reading finding.json and its inputs a writer may replace both.
_READ_ATTEMPTS: Final = 20
_READ_PAUSE_SECONDS: Final = 0.002
_DIGEST: Final = re.compile("[0-9a-f]{64}")
# What is said again of what follows from the rest, for who reads no case.
_DERIVED: Final = ("id", "bucket", "input_elements", "nonzero_elements")


def files_of(finding: Finding) -> dict[str, bytes]:
    """Return the content of an entry's files by name."""
    files = {}
    pinned = {
        name: StoredTensor(spec.dtype, spec.shape, spec.values)
        for name, spec in finding.case.tensors.items()
        if spec.values is not None
    }
    inputs = None
    if pinned:
        files[INPUTS] = tensorfile.dump(pinned)
        inputs = {"file": INPUTS, "sha256": digest_of(files[INPUTS])}
    fields = encode(finding)
    del fields["first"]
    for name, spec in finding.case.tensors.items():
        if spec.values is not None and spec.numel > INLINE_ELEMENTS:
            fields["case"]["tensors"][name]["values"] = {"file": INPUTS}
    derived = {key: getattr(finding, key) for key in _DERIVED}
    document = {"format": FORMAT, **derived, **fields, "inputs": inputs}
    files[FINDING] = strict_json.dumps(document).encode()
    first = {"format": FORMAT, "case": encode(finding.first)}
    files[FIRST] = strict_json.dumps(first).encode()
    return files


def attach(folder: Path, name: str, content: bytes) -> Path:
    """Write a file beside a finding, replacing one of that name; return its path.

    Raises:
        HarnessError: if the disk refuses.
    """
    path = folder / name
    try:
        replace_file(path, content, prefix=STAGED)
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise HarnessError(what, where=str(path)) from None
    return path


def read_entry(folder: Path) -> Finding:
    """Read the finding stored in a folder.

    Raises:
        UnknownFormatError: if its format number is not `FORMAT`.
        DecodeError: if a file is missing, unreadable, malformed or does not fit
            the others, or a path in it leads outside the project.
    """
    path = folder / FINDING
    for attempt in range(1, _READ_ATTEMPTS + 1):
        version = _version(path)
        try:
            return _parse(folder, _read(path))
        except DecodeError as error:
            # Unless a writer came between the files, they are what is wrong.
            if _version(path) == version:
                raise
            failure = error
            time.sleep(attempt * _READ_PAUSE_SECONDS)
    raise failure


def _version(path: Path) -> tuple[int, int, int] | None:
    """Return what changes whenever a file is replaced, by equal content too."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _parse(folder: Path, content: bytes) -> Finding:
    where = f"{folder / FINDING}: "
    document = _document(content, folder / FINDING)
    inputs = _read_inputs(folder, document.pop("inputs", "unsaid"))
    for key in _DERIVED:
        document.pop(key, None)
    _insert_values(document, inputs, where)
    document["first"] = document.get("case")
    finding = decode(Finding, document, where)
    _check_inputs(finding.case, inputs, f"{folder / INPUTS}: ")
    if problem := unsafe_reference(finding):
        raise DecodeError(problem[1], where=where + problem[0])
    # A lone finding.json, passed on in a message, is complete enough to replay.
    if os.path.lexists(folder / FIRST):
        where = f"{folder / FIRST}: "
        first = _document(_read(folder / FIRST), folder / FIRST)
        case = decode(Case, first.get("case"), f"{where}case")
        if problem := _unprintable(_names_of(case, "case")):
            raise DecodeError(problem[1], where=where + problem[0])
        finding = replace(finding, first=case)
    return finding


def _document(content: bytes, path: Path) -> dict[str, Any]:
    value = strict_json.loads(content, where=str(path))
    made: dict[str, Any] = strict_json.document(value, FORMAT, where=str(path))
    return made


def _read_inputs(folder: Path, said: Any) -> dict[str, StoredTensor]:
    """Read the inputs that finding.json names."""
    where = f"{folder / FINDING}: inputs"
    path = folder / INPUTS
    if said is None:
        return {}
    if said == "unsaid":  # written by hand
        return _tensors(_read(path), path) if os.path.lexists(path) else {}
    if not isinstance(said, dict) or said.get("file") != INPUTS:
        raise DecodeError(f"expected null or a reference to {INPUTS}", where=where)
    digest = said.get("sha256")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise DecodeError("expected 64 hexadecimal digits", where=f"{where}.sha256")
    staged = folder / (STAGED + digest[:16])
    # Twice the first: the staged file may take its place between the two looks.
    for candidate in (path, staged, path):
        if os.path.lexists(candidate):
            with contextlib.suppress(MissingError):
                content = _read(candidate)
                if digest_of(content) == digest:
                    return _tensors(content, candidate)
    # Say what is wrong with the file itself, where something is.
    _tensors(_read(path), path)
    fix = "restore both files from the same version"
    what = f"its hash is not the one that {FINDING} names"
    raise DecodeError(what, where=str(path), fix=fix)


def _tensors(content: bytes, path: Path) -> dict[str, StoredTensor]:
    return tensorfile.load(content, where=str(path))


def _insert_values(
    document: dict[str, Any], inputs: dict[str, StoredTensor], where: str
) -> None:
    case = document.get("case")
    tensors = case.get("tensors") if isinstance(case, dict) else None
    for name, spec in tensors.items() if isinstance(tensors, dict) else ():
        if not isinstance(spec, dict) or not isinstance(spec.get("values"), dict):
            continue
        place = f"{where}case.tensors.{name}.values"
        if spec["values"] != {"file": INPUTS}:
            raise DecodeError(f"may only refer to {INPUTS}", where=place)
        if name not in inputs:
            raise DecodeError(f"{INPUTS} holds no tensor {name!r:.80}", where=place)
        spec["values"] = base64.b64encode(inputs[name].data).decode()


def _check_inputs(case: Case, inputs: dict[str, StoredTensor], where: str) -> None:
    for name, tensor in inputs.items():
        spec = case.tensors.get(name)
        if spec is None or spec.values is None:
            what = "the case pins no such tensor"
            raise DecodeError(what, where=f"{where}header.{name}")
        ours = StoredTensor(spec.dtype, spec.shape, spec.values)
        for field in ("dtype", "shape", "data"):
            if getattr(ours, field) != getattr(tensor, field):
                what = f"differs from the case's in {FINDING}"
                raise DecodeError(what, where=f"{where}header.{name}.{field}")


def _read(path: Path) -> bytes:
    """Read a plain file; links, devices and pipes are refused."""
    return read_plain(path, MAX_BYTES, follow=False)


# Writing, replacing and removing one entry of a corpus, whole or not at all.

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
        staged = place / (STAGED + digest_of(inputs)[:16])
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
