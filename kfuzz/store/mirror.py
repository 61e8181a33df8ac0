"""A corpus on a URL: a corpus here, and what was ever written of each finding there.

    <url>/<kernel>/<class>-<8 hex of bucket>/<SHA-256>.json      one version

A version is never changed: it holds the files of an entry, or that it was removed, and
names the versions that it replaces. What no other version replaces holds; where that
are several, because two writers did not know of each other, they are joined as
`kfuzz.store.life.joined` says. So all that a server must be able to do is to create an
object where there is none, and who is killed has written a version or has not.
"""

import base64
import logging
import os
import random
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kfuzz.core.codec import decode, encode
from kfuzz.core.errors import DecodeError, HarnessError, StorageError, UsageError
from kfuzz.core.finding import Finding, safe_name
from kfuzz.store import files as strict_json
from kfuzz.store.corpus import (
    MAX_BYTES,
    files_of,
    read_entry,
    remove_entry,
    write_entry,
)
from kfuzz.store.files import (
    FINDINGS,
    MIRRORS,
    cache_folder,
    digest_of,
    read_plain,
    replace_file,
    sync_folder,
    write_file,
)
from kfuzz.store.life import joined

if TYPE_CHECKING:
    from kfuzz.store.corpus import Corpus


# Objects below a URL, by fsspec: listed, read, and created where none has the name.
#
# An object is named by the SHA-256 of its content. Whoever reads one knows whether it
# is whole, and whoever creates one that is there already has nothing to do.

T = TypeVar("T")

# What is created there is whole or not there, and not there twice.
_BACKENDS: Final = {"file": "", "gs": "gcsfs", "memory": "", "s3": "s3fs"}
_URL: Final = re.compile(r"([a-z][a-z0-9+.-]*)://(.+)")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_SUFFIX: Final = ".json"
# Before each attempt: a server that restarts is back by then.
_WAIT_SECONDS: Final = (0.0, 0.2, 0.4, 0.8, 1.6, 3.2)
# After so long there is no further attempt.
_PATIENCE_SECONDS: Final = 30.0
# Of one call: libraries try again by themselves, for minutes where nobody answers.
_CALL_SECONDS: Final = 60.0
# Another attempt would get the same answer.
_FINAL: Final = (PermissionError, FileNotFoundError, NotADirectoryError, ImportError)


def is_url(text: str) -> bool:
    """Whether a text is a URL, and no path."""
    return _URL.fullmatch(text) is not None


class Objects:
    """What lies below a URL.

    Args:
        url: of a folder, a bucket or a part of one.

    Raises:
        UsageError: if no corpus can be there.
    """

    def __init__(self, url: str) -> None:
        match = _URL.fullmatch(url)
        protocol, place = match.groups() if match else ("", "")
        if protocol not in _BACKENDS:
            raise UsageError(
                "no corpus can be there", where=url,
                fix=f"valid: {', '.join(f'{name}://' for name in _BACKENDS)}",
            )  # fmt: skip
        if protocol == "file" and not place.startswith("/"):
            fix = "write file:///folder"
            raise UsageError("is not an absolute path", where=url, fix=fix)
        if set(url) & set("*?[]#"):
            raise UsageError("holds one of * ? [ ] #", where=url)
        self.url = url
        self._protocol = protocol

    @cached_property
    def _system(self) -> tuple[Any, str]:
        """The file system, and the path of the URL in it."""
        try:
            from fsspec.core import url_to_fs

            # A cached listing lacks what others have created since.
            system, root = url_to_fs(
                self.url, use_listings_cache=False, skip_instance_cache=True
            )
        except ImportError as error:
            fix = f"pip install 'kfuzz[url]' {_BACKENDS[self._protocol]}".rstrip()
            raise UsageError(str(error), where=self.url, fix=fix) from None
        return system, root

    def names(self) -> dict[str, set[str]]:
        """Return the digests of all objects, by the folder below the URL.

        Raises:
            StorageError: if the server does not answer, or refuses.
        """

        def listed() -> Any:
            system, root = self._system
            system.invalidate_cache()
            return system.find(root, **self._limit)

        found: dict[str, set[str]] = {}
        for path in self._tried("listed", listed):
            folder, _, name = (
                path.removeprefix(self._system[1]).strip("/").rpartition("/")
            )
            digest = name.removesuffix(_SUFFIX)
            if name.endswith(_SUFFIX) and _DIGEST.fullmatch(digest):
                found.setdefault(folder, set()).add(digest)
        return found

    def read(self, wanted: Collection[tuple[str, str]]) -> dict[tuple[str, str], bytes]:
        """Return the contents of objects.

        Returns:
            Those that are whole.

        Raises:
            StorageError: as for `names`.
        """
        paths = {self._path(*each): each for each in wanted}
        contents: dict[tuple[str, str], bytes] = {}

        def fetched() -> None:
            system, _ = self._system
            left = [path for path, each in paths.items() if each not in contents]
            found = system.cat(left, on_error="return", **self._limit) if left else {}
            for path, content in found.items():
                if isinstance(content, bytes):
                    contents[paths[path]] = content
            for content in found.values():
                if isinstance(content, Exception):
                    raise content

        self._tried("read", fetched)
        return {e: c for e, c in contents.items() if digest_of(c) == e[1]}

    def create(self, folder: str, content: bytes) -> str:
        """Create an object, unless it is there; return its digest.

        Raises:
            StorageError: as for `names`.
        """
        digest = digest_of(content)
        path = self._path(folder, digest)

        def created() -> None:
            system, _ = self._system
            try:
                if self._protocol == "file":
                    _link(Path(path), content)
                else:
                    system.pipe_file(path, content, mode="create", **self._limit)
            except FileExistsError:
                pass
            except _FINAL:
                raise
            except Exception:
                # Backends have various errors for what is there; and the answer to an
                # attempt that was obeyed may have been lost.
                if not system.exists(path, **self._limit):
                    raise

        self._tried("written", created)
        return digest

    def _path(self, folder: str, digest: str) -> str:
        return f"{self._system[1].rstrip('/')}/{folder}/{digest}{_SUFFIX}"

    @property
    def _limit(self) -> dict[str, float]:
        return {"timeout": _CALL_SECONDS} if self._system[0].async_impl else {}

    def _tried(self, what: str, act: Callable[[], T]) -> T:
        began = time.monotonic()
        for wait in _WAIT_SECONDS:
            time.sleep(wait * random.uniform(0.5, 1))
            try:
                return act()
            except UsageError:
                raise
            except Exception as error:
                failure = error
            late = time.monotonic() - began > _PATIENCE_SECONDS
            if late or isinstance(failure, _FINAL):
                break
        text = " ".join(str(failure).split()) or f"no answer in {_CALL_SECONDS:.0f} s"
        raise StorageError(
            f"cannot be {what}: {type(failure).__name__}: {text:.300}", where=self.url
        ) from None


def _link(path: Path, content: bytes) -> None:
    """Create a file whole, on file systems of many machines, too.

    Raises:
        FileExistsError: if there is one.
        OSError: if the disk refuses.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{secrets.token_hex(8)}")
    try:
        write_file(staged, content)
        os.link(staged, path)
        sync_folder(path.parent)
    finally:
        staged.unlink(missing_ok=True)


log: Final = logging.getLogger("kfuzz.store")
FORMAT: Final = 1
# Kept beside the corpus, which holds findings and nothing else.
_ADDRESS: Final = "url"
_STATES: Final = "states"
# Versions that are held in memory at a time.
_TOGETHER: Final = 128
# What is created to see whether anything can be.
_WRITABLE: Final = (".kfuzz", b"findings of kfuzz, read with --corpus URL\n")


@dataclass(frozen=True)
class Version:
    """What one writer made of an entry.

    Attributes:
        entry: the entry's folder below the corpus.
        parents: digests of the versions that this one replaces.
        files: contents in base64 by name; None where the entry was removed.
    """

    entry: str
    parents: tuple[str, ...]
    files: Mapping[str, str] | None


# A version as it was read: its parents, its finding, and the digest of its files, "" of
# none.
_Read = tuple[tuple[str, ...], Finding | None, str]


@dataclass(frozen=True)
class Held:
    """How an entry here stands to its versions there.

    Attributes:
        heads: digests of the versions that nothing replaces.
        seen: digests of all versions that were read or written.
        content: digest of the entry's files as they went there or came from there; ""
            where there were none.
    """

    heads: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    content: str = ""


class Mirror:
    """The versions of a corpus's entries on a URL.

    Args:
        corpus: the corpus here, in its place in the cache.
    """

    def __init__(self, corpus: "Corpus") -> None:
        self._corpus = corpus
        self._home = corpus.root.parent
        self.url = (self._home / _ADDRESS).read_text(encoding="utf-8")
        self._asked_again = 0.0

    @cached_property
    def _objects(self) -> Objects:
        return Objects(self.url)

    def require_writable(self) -> None:
        """Check that versions can be created.

        Raises:
            StorageError: if not.
        """
        self._objects.create(*_WRITABLE)

    def pull(self) -> None:
        """Take over what others have written.

        Raises:
            StorageError: if the server does not answer, or refuses.
        """
        fresh: list[tuple[str, str]] = []
        for entry, digests in sorted(self._objects.names().items()):
            if _is_entry(entry):
                known = self._held(entry).seen
                fresh += [(entry, each) for each in sorted(digests.difference(known))]
        # All of an entry at a time: a version may be replaced by another of them.
        while fresh:
            some, fresh = fresh[:_TOGETHER], fresh[_TOGETHER:]
            while fresh and fresh[0][0] == some[-1][0]:
                some.append(fresh.pop(0))
            taken: dict[str, dict[str, _Read]] = {}
            for (entry, digest), made in self._each(some):
                if isinstance(made, str):
                    log.warning("kfuzz: skipped: %s", made)
                else:
                    taken.setdefault(entry, {})[digest] = made
            with self._corpus.writing():
                for entry, versions in taken.items():
                    self._take(entry, versions)

    def push(self, entries: Iterable[str] | None = None) -> None:
        """Write what changed here.

        Args:
            entries: folders below the corpus; None for all.

        Raises:
            StorageError: as for `pull`.
        """
        changed: list[tuple[Version, Held]] = []
        with self._corpus.writing():
            for entry in dict.fromkeys(self._all() if entries is None else entries):
                if (made := self._changed(entry)) is not None:
                    changed.append(made)
        # What has moved is there under its new name before it is gone under the old.
        for version, held in sorted(changed, key=lambda made: made[0].files is None):
            text = strict_json.dumps({"format": FORMAT, **encode(version)})
            digest = self._objects.create(version.entry, text.encode())
            with self._corpus.writing():
                now = self._held(version.entry)
                heads = {*now.heads, digest} - set(version.parents)
                self._hold(version.entry, replace(held, heads=tuple(sorted(heads)),
                           seen=tuple(sorted({*now.seen, digest}))))  # fmt: skip

    def send(self, entries: Iterable[str] | None = None) -> None:
        """Write entries that changed, if the server answers; else at the next push."""
        began = time.monotonic()
        if began < self._asked_again:
            return
        try:
            self.push(entries)
        except HarnessError as error:
            now = time.monotonic()
            # It is left alone for ten times as long as that took.
            self._asked_again = now + max(60.0, 10 * (now - began))
            log.warning("kfuzz: %s", self.stays_here(error))

    def stays_here(self, error: HarnessError) -> StorageError:
        """Return an error with where findings are that could not be written."""
        fix = (
            f"What changed is kept in {self._corpus.root}, and written by the next "
            f"command that has --corpus {self.url}"
        )
        return StorageError(error.what, where=error.where, fix=fix)

    def check(self) -> list[tuple[str, str]]:
        """Read every version; return what cannot be used, as (entry, what).

        Raises:
            StorageError: as for `pull`.
        """
        problems = []
        for entry, digests in sorted(self._objects.names().items()):
            wanted = [(entry, digest) for digest in sorted(digests)]
            read = self._each(wanted) if _is_entry(entry) else ()
            problems += [(entry, made) for _, made in read if isinstance(made, str)]
        return problems

    def _each(
        self, wanted: Collection[tuple[str, str]]
    ) -> Iterator[tuple[tuple[str, str], _Read | str]]:
        """Yield versions as they are read, or what is wrong with them."""
        contents = self._objects.read(wanted)
        for entry, digest in wanted:
            try:
                made = self._read(entry, contents.get((entry, digest)))
                yield (entry, digest), made
            except DecodeError as error:
                yield (entry, digest), f"{self.url}/{entry}/{digest}.json: {error}"

    def _read(self, entry: str, content: bytes | None) -> _Read:
        """Return a version as it was written.

        Raises:
            DecodeError: if it is none of this entry, or of a newer format.
        """
        if content is None:
            raise DecodeError("its content does not match its name")
        document = strict_json.document(strict_json.loads(content), FORMAT)
        version = decode(Version, document)
        if version.entry != entry:
            raise DecodeError(f"is of {version.entry!r:.80}", where="entry")
        if version.files is None:
            return version.parents, None, ""
        with tempfile.TemporaryDirectory(dir=self._home) as place:
            folder = Path(place)
            for name, coded in version.files.items():
                if safe_name(name) != name:
                    raise DecodeError(f"{name!r:.80} is no file of an entry")
                try:
                    decoded = base64.b64decode(coded, validate=True)
                except ValueError:
                    raise DecodeError("not base64", where=f"files.{name}") from None
                folder.joinpath(name).write_bytes(decoded)
            finding = read_entry(folder)
        return version.parents, finding, _digest(files_of(finding))

    def _take(self, entry: str, versions: Mapping[str, _Read]) -> None:
        """Take over versions of an entry, alone at the corpus."""
        held, folder = self._held(entry), self._corpus.root / entry
        own, content = _own(folder)
        if content is None:
            return  # damaged here: it is not touched, and `corpus check` says so
        gone = {parent for parents, *_ in versions.values() for parent in parents}
        heads = sorted({*held.heads, *versions} - gone)
        clean = held.content == content
        # What changed here, or nothing replaced, is joined; else the new one holds.
        made = None if clean and not set(held.heads).intersection(heads) else own
        for _, finding, _ in (versions[h] for h in heads if h in versions):
            if finding is not None:
                made = finding if made is None else joined(made, finding)
        if made is not None and made != own:
            write_entry(self._corpus.root, folder, made)
        elif made is None and own is not None:
            remove_entry(self._corpus.root, folder)
        content = _own(folder)[1] or ""
        seen = tuple(sorted({*held.seen, *versions}))
        held = replace(held, heads=tuple(heads), seen=seen)
        if clean or [content] == [versions[h][2] for h in heads if h in versions]:
            held = replace(held, content=content)
        self._hold(entry, held)

    def _changed(self, entry: str) -> tuple[Version, Held] | None:
        """Return the version that is to be written of an entry, if it changed."""
        held, folder = self._held(entry), self._corpus.root / entry
        finding, content = _own(folder)
        if content is None or content == held.content:  # damaged, or as it was
            return None
        now = replace(held, content=content)
        if finding is None:
            return Version(entry, held.heads, None), now
        files = files_of(finding)
        coded = {n: base64.b64encode(c).decode() for n, c in sorted(files.items())}
        return Version(entry, held.heads, coded), now

    def _all(self) -> list[str]:
        states = self._home / _STATES
        known = (p.relative_to(states).with_suffix("") for p in states.glob("*/*.json"))
        root = self._corpus.root
        here = (path.relative_to(root) for path in self._corpus.folders())
        return sorted({str(path) for path in (*known, *here)})

    def _state(self, entry: str) -> Path:
        return self._home / _STATES / f"{entry}.json"

    def _held(self, entry: str) -> Held:
        path = self._state(entry)
        try:
            content = read_plain(path, MAX_BYTES)
            return decode(Held, strict_json.loads(content, where=str(path)))
        except DecodeError:  # none, or cut by a power cut: joining twice does no harm
            return Held()

    def _hold(self, entry: str, held: Held) -> None:
        path = self._state(entry)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = strict_json.dumps(encode(held)).encode()
        replace_file(path, content, prefix=".", sync=False)


def folder_of(url: str) -> Path:
    """Return the folder of the mirror of a corpus on a URL, made if need be.

    Raises:
        UsageError: if no corpus can be there.
        StorageError: if the folder cannot be made.
    """
    objects = Objects(url.rstrip("/"))
    try:
        name = safe_name(objects.url.partition("://")[2].strip("/").replace("/", "-"))
        home = cache_folder(MIRRORS, f"{name}-{digest_of(objects.url.encode())[:8]}")
        if not (home / _ADDRESS).exists():
            replace_file(home / _ADDRESS, objects.url.encode(), prefix=".")
        (home / FINDINGS).mkdir(exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"its mirror cannot be made here: {error}", where=url,
            fix="name another folder with KFUZZ_CACHE",
        ) from None  # fmt: skip
    return home / FINDINGS


def opened(url: str) -> Path:
    """Return the folder of the mirror of a corpus on a URL, and bring it up to date.

    What an earlier command could not write there is written.

    Raises:
        UsageError, StorageError: as `folder_of`; if the server does not answer, or
            refuses.
    """
    from kfuzz.store.corpus import Corpus

    corpus = Corpus(folder_of(url))
    mirror = corpus.mirror
    assert mirror is not None
    _opened[mirror.url] = mirror
    mirror.pull()
    mirror.send()
    return corpus.root


def finish() -> None:
    """Write what is left to be written, of all mirrors that were opened here.

    Raises:
        StorageError: if a server does not answer, or refuses.
    """
    while _opened:
        _, mirror = _opened.popitem()
        try:
            mirror.push()
        except HarnessError as error:
            raise mirror.stays_here(error) from None


def _digest(files: Mapping[str, bytes]) -> str:
    if not files:
        return ""
    each = (f"{name} {digest_of(content)}\n" for name, content in sorted(files.items()))
    return digest_of("".join(each).encode())


def _own(folder: Path) -> tuple[Finding | None, str | None]:
    """Return an entry here, and the digest of its files, "" of none, None of damage."""
    try:
        finding = read_entry(folder)
    except DecodeError:
        return None, None if folder.is_dir() and any(folder.iterdir()) else ""
    return finding, _digest(files_of(finding))


def _is_entry(name: str) -> bool:
    """Whether a folder below a URL is that of an entry, here as there."""
    parts = name.split("/")
    return len(parts) == 2 and all(part and safe_name(part) == part for part in parts)


_opened: Final[dict[str, Mirror]] = {}
