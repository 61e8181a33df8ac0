"""One entry of the corpus: a finding as three files, and back, and what lies beside.

    finding.json         "format" first; the finding but for `first`; values of
                         more than `INLINE_ELEMENTS` elements only by reference
    inputs.safetensors   elements of every pinned tensor of the minimal case
    first.json           the case as first found
    sanitizer-TOOL.txt   what compute-sanitizer said of it, where it was asked; read
                         by people only

`finding.json` names the inputs by their hash, so that replacing it is what
commits a change of both; see `kfuzz.store.corpus`.
"""

import base64
import contextlib
import os
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kfuzz.core.codec import INLINE_ELEMENTS, decode, encode
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import DecodeError, HarnessError
from kfuzz.core.finding import Explanation, Finding, Mark, Target
from kfuzz.core.fingerprint import Fingerprint
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Failure, Signature, State
from kfuzz.store import strict_json, tensorfile
from kfuzz.store.durable import digest_of, replace_file
from kfuzz.store.plain_file import MissingError, read_plain
from kfuzz.store.tensorfile import StoredTensor
from kfuzz.store.trust import unsafe_name, unsafe_reference

FORMAT: Final = 1
FINDING: Final = "finding.json"
INPUTS: Final = "inputs.safetensors"
FIRST: Final = "first.json"
STAGED: Final = ".staged-"
_ATTACHED: Final = "sanitizer-*.txt"

# Two pinned operands of the largest budget (2^22 float64) as base64 need 90 MB;
# what is far beyond is hostile, and reading it would only fill the memory.
MAX_BYTES: Final = 1 << 29
# Between reading finding.json and its inputs a writer may replace both.
_READ_ATTEMPTS: Final = 20
_READ_PAUSE_SECONDS: Final = 0.002
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_COUNT: Final[Any] = int | None
# What is said again of what follows from the rest, for who reads no case.
_DERIVED: Final[dict[str, Any]] = {
    "id": str, "bucket": str, "input_elements": int, "nonzero_elements": _COUNT,
}  # fmt: skip
# What a list needs of a finding, and what it is.
_LISTED: Final[dict[str, Any]] = {
    "signature": Signature,
    "target": Target,
    "failure": Failure,
    "state": State,
    "explanation": Explanation,
    "mark": Mark | None,
}


@dataclass(frozen=True)
class Summary:
    """What a list says of a finding.

    Attributes:
        finding: the finding; what was read for a list alone has no case.
        input_elements: elements over all tensor inputs of the minimal case.
        nonzero_elements: non-zero ones, None where that is not known.
    """

    finding: Finding
    input_elements: int
    nonzero_elements: int | None


def summary_of(finding: Finding) -> Summary:
    """Return what a list says of a finding."""
    return Summary(finding, finding.input_elements, finding.nonzero_elements)


def read_summary(folder: Path) -> Summary:
    """Read what a list says of the finding stored in a folder.

    The case, which is most of an entry, is not looked at: `read_entry` may refuse
    what this lists.

    Raises:
        UnknownFormatError, DecodeError: as `read_entry`.
    """
    path = folder / FINDING
    document = _document(_read(path), path)
    counted = ("input_elements", "nonzero_elements")
    needed = (*counted, "signature", "target", "failure")
    if document.get("explanation") is None or any(k not in document for k in needed):
        return summary_of(read_entry(folder))  # its id lies in its case
    where = f"{path}: "
    elements, nonzero = (_counted(document, key, where) for key in counted)
    empty = Case({}, {})
    finding = Finding(
        **{
            name: decode(kind, document[name], where + name)
            for name, kind in _LISTED.items()
            if name in document
        },
        operator="",
        device="",
        case=empty,
        first=empty,
        declaration=Declaration(),
        fingerprint=Fingerprint(),
    )
    if problem := unsafe_reference(finding):
        raise DecodeError(problem[1], where=where + problem[0])
    return Summary(finding, elements, nonzero)


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
        raise HarnessError(
            f"cannot be written: {error.strerror or error}", where=str(path)
        ) from None
    return path


def attachments(folder: Path) -> dict[str, bytes]:
    """Return what lies beside a finding for people to read, by name.

    What is no plain file, or cannot be read, is left out.
    """
    found = {}
    for path in sorted(folder.glob(_ATTACHED)):
        with contextlib.suppress(DecodeError):
            found[path.name] = _read(path)
    return found


def staged_name(content: bytes) -> str:
    """Return the name under which new inputs wait for their finding.json."""
    return STAGED + digest_of(content)[:16]


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


def misstated(stored: Finding, folder: Path) -> str:
    """Return what an entry says of its finding that does not follow from it, or ""."""
    document = _document(_read(folder / FINDING), folder / FINDING)
    for key in _DERIVED:
        said, follows = document.get(key), getattr(stored, key)
        if key in document and said != follows:
            return f"{key} says {said!r:.40}, and is {follows!r:.40}"
    return ""


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
    for key in _DERIVED.keys() & document.keys():
        _counted(document, key, where)
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
        if problem := unsafe_name(case):
            raise DecodeError(problem[1], where=where + problem[0])
        finding = replace(finding, first=case)
    return finding


def _counted(document: dict[str, Any], key: str, where: str) -> Any:
    """Return what an entry says again of what follows from the rest."""
    made = decode(_DERIVED[key], document.pop(key), f"{where}{key}")
    if isinstance(made, int) and made < 0:
        raise DecodeError("is below 0", where=f"{where}{key}")
    return made


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
    raise DecodeError(
        f"its hash is not the one that {FINDING} names",
        where=str(path),
        fix="restore both files from the same version",
    )


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
            raise DecodeError(
                "the case pins no such tensor", where=f"{where}header.{name}"
            )
        for field in ("dtype", "shape"):
            ours, theirs = getattr(spec, field), getattr(tensor, field)
            if ours != theirs:
                raise DecodeError(
                    f"{theirs!r:.80} differs from the case's {ours!r:.80}",
                    where=f"{where}header.{name}.{field}",
                )
        if tensor.data != spec.values:
            raise DecodeError(
                f"elements differ from those in {FINDING}",
                where=f"{where}header.{name}",
            )


def _read(path: Path) -> bytes:
    """Read a plain file; links, devices and pipes are refused."""
    return read_plain(path, MAX_BYTES, follow=False)
