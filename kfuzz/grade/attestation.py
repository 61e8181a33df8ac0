"""A conformance statement as an in-toto statement about files.

One statement with the predicate "test result", and kfuzz's detail as a field of that:
what reads test results ignores fields that it does not know, and one signature covers
both.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Final

from kfuzz.core.codec import decode
from kfuzz.core.errors import DecodeError, UsageError
from kfuzz.core.statement import KernelStatement, Statement
from kfuzz.core.verdict import CHARGED, Evidence, Verdict
from kfuzz.grade.levels import LEVELS, is_judged, standing_of
from kfuzz.grade.statement_text import statement_document
from kfuzz.store.durable import digest_of
from kfuzz.store.plain_file import read_plain

STATEMENT: Final = "https://in-toto.io/Statement/v1"
TEST_RESULT: Final = "https://in-toto.io/attestation/test-result/v0.1"
FORMAT: Final = 1
# A wheel with compiled kernels for many GPUs.
_MOST_BYTES: Final = 1 << 30


@dataclass(frozen=True)
class Attested:
    """What an in-toto statement of kfuzz's says.

    Attributes:
        result: "PASSED", "WARNED" or "FAILED".
        digests: SHA-256 of each file by its name, relative to the project.
        statement: the conformance statement.
    """

    result: str
    digests: Mapping[str, str]
    statement: Statement

    @property
    def targets(self) -> tuple[str, ...]:
        """The kernels, as `kfuzz run` takes them."""
        return tuple(kernel.kernel for kernel in self.statement.kernels)


def attestation(
    statement: Statement, *, root: Path, subjects: Sequence[Path] = ()
) -> dict[str, Any]:
    """Return the in-toto statement about a conformance statement.

    Args:
        statement: what `kfuzz grade` found.
        root: the project, to which names of files are relative.
        subjects: files that it is about; by default those that bind the kernels.

    Raises:
        UsageError: if it is about no file, or no value of a kernel was compared.
    """
    for kernel in statement.kernels:
        if not is_judged(kernel):
            raise UsageError(
                "no value of it was compared: it gets no certificate",
                where=kernel.kernel,
                fix="grade with more cases, or leave it out",
            )
    files = {_name(path, root): path for path in subjects} or _files(statement, root)
    if not files:
        raise UsageError("no kernel was graded: there is nothing to certify")
    passed, warned, failed = [], [], []
    for kernel in statement.kernels:
        for name, graded in kernel.contracts.items():
            about = f"{kernel.kernel} {name}"
            if graded.verdict is Verdict.CONFORMS:
                passed.append(about)
            elif graded.verdict is Verdict.VIOLATES:
                failed.append(about)
            elif graded.verdict is not Verdict.NOT_APPLICABLE:
                warned.append(about)
    return {
        "_type": STATEMENT,
        "subject": [
            {"name": name, "digest": {"sha256": digest(path)}}
            for name, path in sorted(files.items())
        ],
        "predicateType": TEST_RESULT,
        "predicate": {
            "result": result_of(statement),
            "configuration": [],
            "passedTests": passed,
            "warnedTests": warned,
            "failedTests": failed,
            "kfuzz": {
                "format": FORMAT,
                "must_pass": {
                    kernel.kernel: must_pass(statement, kernel)
                    for kernel in statement.kernels
                },
                "not_covered": not_covered(statement),
                **statement_document(statement),
            },
        },
    }


def canonical(document: Mapping[str, Any]) -> bytes:
    """Return JSON with sorted keys and without spaces; equal for equal documents."""
    text = json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False,
        allow_nan=False,
    )  # fmt: skip
    return text.encode()


def attested(document: Any) -> Attested:
    """Return what an in-toto statement of kfuzz's says.

    Raises:
        DecodeError: if it is none, or is malformed; names the field.
    """
    document = _object(document, "the statement")
    if document.get("_type") != STATEMENT:
        kind = document.get("_type")
        raise DecodeError(f"_type {kind!r:.60} is no in-toto statement")
    if document.get("predicateType") != TEST_RESULT:
        raise DecodeError(
            f"predicateType {document.get('predicateType')!r:.80} is no test result"
        )
    predicate = _object(document.get("predicate"), "predicate")
    detail = _object(predicate.get("kfuzz"), "predicate.kfuzz")
    if detail.get("format") != FORMAT:
        raise DecodeError(
            f"format {detail.get('format')!r:.20} is not known",
            where="predicate.kfuzz",
            fix=f"this kfuzz reads format {FORMAT}",
        )
    digests = {}
    subjects = document.get("subject")
    for number, entry in enumerate(subjects if isinstance(subjects, list) else ()):
        place = f"subject[{number}]"
        entry = _object(entry, place)
        made = _object(entry.get("digest"), f"{place}.digest").get("sha256")
        name = entry.get("name")
        if not isinstance(made, str) or not isinstance(name, str) or not name:
            raise DecodeError("no name with a SHA-256", where=place)
        digests[name] = made
    if not digests:
        raise DecodeError("it is about no file", where="subject")
    statement = decode(Statement, detail.get("statement"), "predicate.kfuzz.statement")
    told = predicate.get("result")
    if told != result_of(statement):
        raise DecodeError(
            f"result {told!r:.20} does not follow from what was found",
            where="predicate.result",
        )
    return Attested(str(told), digests, statement)


def result_of(statement: Statement) -> str:
    """Return in-toto's word for a statement: PASSED, WARNED or FAILED.

    Passed are kernels that reach a level and violate nothing, on evidence enough.
    """
    for kernel in statement.kernels:
        verdicts = {graded.verdict for graded in kernel.contracts.values()}
        charged = any(fault.state in CHARGED for fault in kernel.findings)
        if charged or Verdict.VIOLATES in verdicts:
            return "FAILED"
    weak = statement.interrupted or not statement.kernels
    for kernel in statement.kernels:
        thin = kernel.tried is not None and kernel.tried.evidence is Evidence.THIN
        weak = weak or thin or standing_of(statement, kernel).level == 0
    return "WARNED" if weak else "PASSED"


def must_pass(statement: Statement, kernel: KernelStatement) -> list[str]:
    """Return the contracts that the next level of a kernel demands, or its own."""
    reached = standing_of(statement, kernel).level
    wanted = [n for level in LEVELS[: max(reached, 1)] for n in level.classes]
    return [name for name in wanted if name in kernel.contracts]


def not_covered(statement: Statement) -> list[str]:
    """Return what the statement does not speak of, one line each."""
    lines = ["other devices, and other versions of the driver, torch and triton"]
    for kernel in statement.kernels:
        for name, graded in kernel.contracts.items():
            if not graded.decided and graded.verdict is not Verdict.VIOLATES:
                lines.append(f"{kernel.kernel}: {name} was decided by no case")
        for refusal in kernel.refusals:
            lines.append(f"{kernel.kernel}: rejected by the kernel: {refusal.reason}")
    return lines + list(statement.notices)


def is_of_a_module(target: str) -> bool:
    """Whether a kernel is a module's, wherever that is installed, and no file's."""
    return "::" not in target


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal.

    Raises:
        DecodeError: if it cannot be read.
    """
    return digest_of(read_plain(path, _MOST_BYTES))


def place_of(name: str, root: Path) -> Path | None:
    """Return the file of a subject, None where there is none.

    It is one of the project, or the file of a module that can be found by its name.
    """
    if name.startswith("module:"):
        return _module_file(name.removeprefix("module:"))
    try:
        path = (root / name).resolve()
        inside = path.is_relative_to(root.resolve())
        return path if inside and path.is_file() else None
    except (OSError, ValueError):  # no name that a file can have
        return None


def _files(statement: Statement, root: Path) -> dict[str, Path]:
    """Return the files that bind the kernels, by the name of each."""
    found = {}
    for kernel in statement.kernels:
        target = kernel.kernel
        name = target.partition("::")[0]
        if is_of_a_module(target):
            name = f"module:{target.partition(':')[0]}"
        path = place_of(name, root)
        if path is None:
            raise UsageError(
                "its file is not within the project",
                where=kernel.kernel,
                fix="name what the certificate is about: --subject FILE",
            )
        found[name] = path
    return found


def _module_file(module: str) -> Path | None:
    """Return the file of a module; nothing is imported, its packages neither."""
    parts = module.split(".")
    places: list[str] | None = None
    origin: str | None = None
    for number in range(len(parts)):
        try:
            spec = PathFinder.find_spec(".".join(parts[: number + 1]), places)
        except (ImportError, ValueError):
            return None
        if spec is None:
            return None
        places, origin = list(spec.submodule_search_locations or ()), spec.origin
    return Path(origin) if origin else None


def _name(path: Path, root: Path) -> str:
    whole = path.resolve()
    if not whole.is_relative_to(root.resolve()):
        raise UsageError(
            "a subject lies within the project", where=str(path), fix="copy it there"
        )
    return str(whole.relative_to(root.resolve()))


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DecodeError("is no JSON object", where=where)
    return value
