"""One entry of the corpus: a finding as three files, and back.

    finding.json         "format" first; the finding but for `first`; values of
                         more than `INLINE_ELEMENTS` elements only by reference
    inputs.safetensors   elements of every pinned tensor of the minimal case
    first.json           the case as first found

`finding.json` names the inputs by their hash, so that replacing it is what
commits a change of both; see `kfuzz.store.corpus`.
"""

import base64
import contextlib
import errno
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from kfuzz.core.codec import INLINE_ELEMENTS, decode, encode
from kfuzz.core.errors import DecodeError, HarnessError
from kfuzz.core.finding import ATEN, Finding, Mark, Target
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Signature
from kfuzz.store import files as strict_json
from kfuzz.store import files as tensorfile
from kfuzz.store.files import (
    MissingError,
    StoredTensor,
    UnknownFormatError,
    digest_of,
    read_plain,
    replace_file,
    sync_folder,
    write_file,
)

# What a finding may call things: strangers write findings too.


def unsafe_reference(finding: Finding) -> tuple[str, str] | None:
    """Return (field, why) where a name or path must not be trusted."""
    target, signature = finding.target, finding.signature
    path = PurePosixPath(target.file)
    if path.is_absolute() or ".." in path.parts or "\\" in target.file:
        return "target.file", (
            f"{target.file!r:.80} leads outside the project; it must be relative"
        )
    module = target.module.removeprefix(ATEN)
    parts = module.split(".") if target.module else []
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
