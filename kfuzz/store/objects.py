"""Objects below a URL, by fsspec: listed, read, and created where none has the name.

An object is named by the SHA-256 of its content. Whoever reads one knows whether it is
whole, and whoever creates one that is there already has nothing to do.
"""

import os
import random
import re
import secrets
import time
from collections.abc import Callable, Collection
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from kfuzz.core.errors import StorageError, UsageError
from kfuzz.store.durable import digest_of, sync_folder, write_file

T = TypeVar("T")

# What is created there is whole or not there, and not there twice.
_BACKENDS: Final = {"file": "", "gs": "gcsfs", "memory": "", "s3": "s3fs"}
_URL: Final = re.compile(r"([a-z][a-z0-9+.-]*)://(.+)")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_SUFFIX: Final = ".json"
# Waits of 0.2 s to 3.2 s between them: a server that restarts is back by then.
_ATTEMPTS: Final = 6
_FIRST_WAIT_SECONDS: Final = 0.2
# After so long there is no further attempt.
_PATIENCE_SECONDS: Final = 30.0
# Of one call: libraries try again by themselves, for minutes where nobody answers.
_CALL_SECONDS: Final = 60.0
# Another attempt would be told the same.
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
        except ImportError:
            fix = "pip install 'kfuzz[url]'"
            raise UsageError(
                "needs fsspec, which is not installed", where=self.url, fix=fix
            ) from None
        try:
            # A cached listing lacks what others have created since.
            system, root = url_to_fs(
                self.url, use_listings_cache=False, skip_instance_cache=True
            )
        except ImportError:
            package = _BACKENDS[self._protocol]
            raise UsageError(
                f"needs {package}, which is not installed",
                where=self.url,
                fix=f"pip install {package}",
            ) from None
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
        for attempt in range(_ATTEMPTS):
            if attempt:
                wait = _FIRST_WAIT_SECONDS * 2 ** (attempt - 1)
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
