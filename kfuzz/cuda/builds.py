"""Builds of CUDA C++, kept on disk by all that they depend on.

An entry is whole or not there: it is written beside and moved, so that processes that
build the same at once replace each other's equal files.
"""

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kfuzz.core.errors import BuildError, DecodeError
from kfuzz.cuda import compilers
from kfuzz.cuda.compilers import Binary, Compiler, Unit
from kfuzz.store import strict_json
from kfuzz.store.cache import cache_folder
from kfuzz.store.durable import replace_file

_FORMAT: Final = 1
_INCLUDE: Final = re.compile(
    r"^[ \t]*#[ \t]*include(?:_next)?[ \t]*(.*)$", re.MULTILINE
)
_NAMED: Final = re.compile(r'["<]([^">\n]+)[">]')
_FOLDERS: Final = ("-I", "--include-path=", "-isystem")
# What compilers read besides their command line.
_ENVIRONMENT: Final = (
    "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "NVCC_CCBIN", "CPATH",
    "CPLUS_INCLUDE_PATH", "HIPCC_COMPILE_FLAGS_APPEND", "HIP_PLATFORM",
)  # fmt: skip


def build(unit: Unit, architecture: str, compiler: str, *, hip: bool = False) -> Binary:
    """Return what a source compiles to, from the cache where it is there.

    NVRTC has few of the host's headers: where "auto" meets one that it lacks, nvcc is
    asked.

    Args:
        unit: the source.
        architecture: of the processor, e.g. "sm_90".
        compiler: "auto", "nvrtc", "nvcc" or "hipcc".
        hip: whether torch is a build for AMD's GPUs.

    Raises:
        BuildError: if no compiler is there, or it cannot build it.
    """
    able = compilers.chosen(compiler, hip=hip)
    for last, each in enumerate(able, 1 - len(able)):
        try:
            return _built(unit, architecture, each)
        except BuildError as error:
            if not last or not compilers.lacks_header(error):
                raise
    raise AssertionError("the last compiler returned or raised")


def _built(unit: Unit, architecture: str, compiler: Compiler) -> Binary:
    key = key_of(unit, architecture, compiler.version())
    path = _entry(key)
    kept = _read(path)
    if kept is None:
        kept = compiler.build(unit, architecture)
        _keep(path, kept)
    return kept


def key_of(unit: Unit, architecture: str, version: str) -> str:
    """Return the hash of everything that a build depends on.

    The files that it includes too, as far as they are found in its own folder and in
    those that the options name; those of the toolkit go with its version. Where a
    macro names an include, nothing is known of it, and no two keys are equal.
    """
    digest = hashlib.sha256()

    def add(*parts: str | bytes) -> None:
        for part in parts:
            data = part.encode() if isinstance(part, str) else part
            digest.update(f"{len(data)}:".encode())
            digest.update(data)

    add(str(_FORMAT), architecture, version, unit.file, unit.text)
    add(*unit.options, "expressions", *unit.expressions, "environment")
    add(*(os.environ.get(name, "") for name in _ENVIRONMENT), "included")
    for path, data in _included(unit):
        add(str(path), data)
    return digest.hexdigest()


def _included(unit: Unit) -> Iterator[tuple[str, bytes]]:
    """Yield what a source includes, and what that does, each file once."""
    folders = [Path(each) for each in _given(unit.options, *_FOLDERS)]
    pending = [(unit.text, unit.folder)]
    for option in _given(unit.options, "-include", "--pre-include"):
        pending.append((f'#include "{option}"', Path.cwd()))
    seen: set[Path] = set()
    while pending:
        text, folder = pending.pop()
        for met in _INCLUDE.finditer(text):
            named = _NAMED.match(met.group(1).strip())
            if named is None:
                yield met.group(1), secrets.token_bytes(16)
                continue
            near = [] if folder is None else [folder]
            for place in (*near, *folders):
                path = (place / named.group(1)).resolve()
                if path in seen:
                    break
                try:
                    data = path.read_bytes()
                except OSError:
                    continue
                seen.add(path)
                yield str(path), data
                pending.append((data.decode(errors="replace"), path.parent))
                break


def _given(options: Sequence[str], *names: str) -> Iterator[str]:
    """Yield what options of some names are given, apart, joined or after a "="."""
    for at, option in enumerate(options):
        for name in names:
            if option == name and at + 1 < len(options):
                yield options[at + 1]
            elif option.startswith(name) and option != name:
                yield option.removeprefix(name).lstrip("=")


def _entry(key: str) -> Path | None:
    """Return where a build is kept; None where nothing can be."""
    try:
        return cache_folder("builds", key[:2]) / f"{key}.bin"
    except OSError:
        return None


def _read(path: Path | None) -> Binary | None:
    """Return a kept build: a line of JSON, then its code."""
    if path is None:
        return None
    try:
        head, _, code = path.read_bytes().partition(b"\n")
        told = strict_json.loads(head)
        whole = hashlib.sha256(code).hexdigest() == told["sha256"]
        return Binary(code, dict(told["names"])) if whole else None
    except (OSError, DecodeError, ValueError, KeyError, TypeError):
        return None


def _keep(path: Path | None, made: Binary) -> None:
    """Keep a build; a disk that is full keeps none."""
    if path is None:
        return
    told = {"sha256": hashlib.sha256(made.code).hexdigest(), "names": dict(made.names)}
    try:
        replace_file(
            path, json.dumps(told).encode() + b"\n" + made.code, prefix=".new-"
        )
    except OSError:
        return
