"""Findings: a violating case with everything needed to show and replay it."""

import hashlib
import json
import platform
import re
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from importlib import metadata
from pathlib import Path
from typing import ClassVar, Final

from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import DTYPES, unpack_bits
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import (
    ILLEGAL_ADDRESS,
    ErrorMap,
    Failure,
    Feature,
    Kind,
    Signature,
    State,
)

# The environment in which a finding was made; nothing that names a person or host.


@dataclass(frozen=True)
class Fingerprint:
    """Versions and hardware, as far as they bear on a result.

    Attributes:
        python, kfuzz, torch, triton, numpy: versions, "" where absent.
        system: operating system and machine, e.g. "Linux x86_64".
        device: name of the device the kernel ran on.
        driver: versions of the GPU's driver and runtime, "" on the CPU.
        flags: settings of torch and of the environment that change what kernels
            compute, each as "name=value".
    """

    UNSAID: ClassVar = ("flags",)

    python: str = ""
    kfuzz: str = ""
    torch: str = ""
    triton: str = ""
    numpy: str = ""
    system: str = ""
    device: str = ""
    driver: str = ""
    flags: tuple[str, ...] = ()

    def differences(self, other: "Fingerprint") -> list[str]:
        """Return one line per field, and per flag, in which the two differ."""
        then, now = self._facts(), other._facts()
        return [
            f"{name}: {then.get(name) or 'none'} -> {now.get(name) or 'none'}"
            for name in dict.fromkeys((*then, *now))
            if then.get(name, "") != now.get(name, "")
        ]

    def _facts(self) -> dict[str, str]:
        facts = {f.name: getattr(self, f.name) for f in fields(self)}
        flags = (flag.partition("=") for flag in facts.pop("flags"))
        return facts | {name: value for name, _, value in flags}


def host_fingerprint(
    *, device: str = "", driver: str = "", flags: tuple[str, ...] = ()
) -> Fingerprint:
    """Return the fingerprint of this process without importing torch."""
    return Fingerprint(
        python=platform.python_version(),
        kfuzz=version_of("kfuzz"),
        torch=version_of("torch"),
        triton=version_of("triton"),
        numpy=version_of("numpy"),
        system=f"{platform.system()} {platform.machine()}",
        device=device,
        driver=driver,
        flags=flags,
    )


def version_of(distribution: str) -> str:
    """Return an installed distribution's version, "" where it is absent."""
    if distribution == "kfuzz":
        from kfuzz import __version__

        return __version__
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


# How grave a finding is: the order in which findings are listed.


class Severity(IntEnum):
    """How grave a finding is, the gravest first.

    OUT_OF_BOUNDS: memory that the kernel was not given is read or written.
    CRASH: the call crashes, hangs or raises.
    WRONG_VALUE: a result is wrong on finite input.
    PRECISION: a result is less precise than declared.
    NONDETERMINISM: equal calls give different results.
    NONFINITE: only NaN or infinities in the input show it.
    LIMIT: the result is right, another declared property is not; or it is as near as
        that of another form of the function may be.
    """

    OUT_OF_BOUNDS = 1
    CRASH = 2
    WRONG_VALUE = 3
    PRECISION = 4
    NONDETERMINISM = 5
    NONFINITE = 6
    LIMIT = 7

    @property
    def words(self) -> str:
        """The severity for people and documents."""
        return _WORDS[self]


_WORDS: Final = {
    Severity.OUT_OF_BOUNDS: "out-of-bounds access",
    Severity.CRASH: "crash or hang",
    Severity.WRONG_VALUE: "wrong value",
    Severity.PRECISION: "precision",
    Severity.NONDETERMINISM: "nondeterminism",
    Severity.NONFINITE: "non-finite input only",
    Severity.LIMIT: "limit",
}
_OF_KIND: Final = {
    kind: severity
    for severity, kinds in {
        Severity.OUT_OF_BOUNDS: {Kind.READ_OUTSIDE, Kind.WRITE_OUTSIDE},
        Severity.CRASH: {
            Kind.HANG, Kind.CRASH, Kind.DEVICE_FAULT, Kind.UNCHECKED_LAUNCH, Kind.RAISES
        },
        Severity.NONDETERMINISM: {
            Kind.RACE, Kind.NONDETERMINISTIC, Kind.SEED_DEPENDENT,
            Kind.BATCH_DEPENDENT, Kind.OVERLAP_DEPENDENT, Kind.TUNING_DEPENDENT,
        },
        Severity.NONFINITE: {Kind.NONFINITE_ACCEPTED},
        Severity.LIMIT: {Kind.FOREIGN_OPERATOR, Kind.DOES_NOT_BUILD},
    }.items()
    for kind in kinds
}  # fmt: skip
# A process that ends takes all with it, whatever the input was.
_WHATEVER_IT_NEEDS: Final = frozenset(
    {Kind.READ_OUTSIDE, Kind.WRITE_OUTSIDE, Kind.HANG, Kind.CRASH, Kind.DEVICE_FAULT}
)
_OF_PRECISION: Final = ("C-PRC-01", "C-PRC-03", "C-PRC-04")
_OF_RANGE: Final = "C-PRC-02"
_OF_FORM: Final = frozenset({"K-VAL-01", "C-CMP-01", _OF_RANGE})
_NONFINITE: Final = "C-EXC-01"
_NUMBERS: Final = {Feature.NAN: "NaN", Feature.INF: "infinity"}


def contract_of(signature: Signature, message: str) -> str:
    """Return the class that a failure breaks; of a gradient the one it names."""
    named = message.partition(" in a gradient: ")
    return named[0] if named[1] and named[0] in message[:8] else signature.contract


def needed_nonfinite(
    signature: Signature, message: str, features: Collection[Feature]
) -> str:
    """Return what non-finite input a failure needs: "NaN"; "" where it needs none.

    Args:
        signature: of the failure.
        message: of the failure.
        features: what the explanation found that it needs.
    """
    needed = [words for feature, words in _NUMBERS.items() if feature in features]
    if not needed and contract_of(signature, message) == _NONFINITE:
        return "NaN or infinity"
    return " and ".join(needed)


def is_near(failure: Failure, contract: str) -> bool:
    """Whether a failure may be another form of the same function; no tail is."""
    return failure.near and contract in _OF_FORM


def severity_of(
    signature: Signature, failure: Failure, features: Collection[Feature]
) -> Severity:
    """Return how grave a failure is; arguments as of `needed_nonfinite`."""
    kind, message = signature.kind, failure.message
    if signature.detail == ILLEGAL_ADDRESS:
        return Severity.OUT_OF_BOUNDS
    if kind in _WHATEVER_IT_NEEDS:
        return _OF_KIND[kind]
    if needed_nonfinite(signature, message, features):
        return Severity.NONFINITE
    contract = contract_of(signature, message)
    if is_near(failure, contract):
        return Severity.LIMIT
    imprecise = contract == _OF_RANGE and kind is Kind.VALUE
    if imprecise or contract in _OF_PRECISION:
        return Severity.PRECISION
    return _OF_KIND.get(kind, Severity.WRONG_VALUE)


# File systems allow 255 bytes; two names and two hashes make an id.
MAX_NAME: Final = 80


@dataclass(frozen=True)
class Target:
    """Where a kernel lives.

    Attributes:
        file: path of the defining file, relative to the project; "" where the
            kernel has no importable home or lies outside the project.
        name: the kernel's bound name.
        module: dotted module where the target was given as one; else "".
        reference: path of the reference that `file`, a candidate nobody vouches
            for, is held against; "" for kernels.
    """

    UNSAID: ClassVar = ("reference",)

    file: str
    name: str
    module: str = ""
    reference: str = ""

    @property
    def node_id(self) -> str:
        """The one name of a kernel: path.py::name, or package.module:name.

        Of a candidate its path.
        """
        if self.reference:
            return self.file
        if self.module:
            return f"{self.module}:{self.name}"
        return f"{self.file}::{self.name}" if self.file else self.name


@dataclass(frozen=True)
class Change:
    """One entry of a finding's history.

    Attributes:
        state: the state entered.
        when: UTC time, ISO 8601 to the second.
        note: why, for people.
        marked: whether a person said so.
    """

    UNSAID: ClassVar = ("marked",)

    state: State
    when: str
    note: str = ""
    marked: bool = False


@dataclass(frozen=True)
class Mark:
    """Why a finding is known.

    Attributes:
        reason: in words.
        link: an http or https address, such as an issue's; "" for none.
        features: the mark holds for findings of the same signature that need all
            these; empty for all of the signature.
        of: id of the finding whose mark this one's is, "" where it is its own.
    """

    reason: str
    link: str = ""
    features: tuple[Feature, ...] = ()
    of: str = ""


@dataclass(frozen=True)
class Reduction:
    """How a minimum was reached.

    Attributes:
        evaluations: candidate cases run.
        stopped: "minimal" (no candidate fails any more), "evaluations" or
            "time" (the budget that ended it).
    """

    evaluations: int = 0
    stopped: str = "minimal"


@dataclass(frozen=True)
class Explanation:
    """What was varied on the minimum and what the failure turned out to need.

    Attributes:
        features: the features without which it passes.
        lines: one sentence per variation tried.
        complete: False if the clock cut it short; the bucket is then the
            signature alone.
    """

    features: tuple[Feature, ...] = ()
    lines: tuple[str, ...] = ()
    complete: bool = True


SHOWS: Final = ("fails where", "fails from", "passes with")
"""How lines of an explanation begin that name a need."""
BESIDE: Final = ("fails also", "fails, but in another way,")
"""How those begin that name none."""


def relative(file: str, folder: Path) -> str:
    """Return a path from a folder where it lies below that, else as it is."""
    try:
        return str(Path(file).resolve().relative_to(folder.resolve()))
    except (OSError, ValueError):  # the folder may be gone
        return file


@dataclass(frozen=True)
class Line:
    """The line of source that a finding comes from.

    Attributes:
        file: its file, from the project's folder where it lies in that.
        line: counted from 1.
        certain: whether nothing else was found that it may come from.
        evidence: what shows it, in a sentence.
        column: where on the line, counted from 0.
        source: the line as it was then.
    """

    UNSAID: ClassVar = ("column", "source")

    file: str
    line: int
    certain: bool
    evidence: str
    column: int = 0
    source: str = ""

    @property
    def change(self) -> tuple[str, int, int, str] | None:
        """The change that mends it, its place first; None if it breaks what passed."""
        words, _, left = self.evidence.partition(", and ")
        change = words.rpartition(", ")[0]
        return (self.file, self.line, self.column, change) if left else None

    def __str__(self) -> str:
        """Return the place, how sure it is, and the evidence, in one line."""
        sure = "certain" if self.certain else "probably"
        return f"{self.file}:{self.line} ({sure}): {self.evidence}"


@dataclass(frozen=True)
class Patch:
    """A change of source with which a finding's kernel passes all that was tried.

    Attributes:
        file: as of the finding's line.
        line: where the change is, counted from 1.
        diff: the change as a unified diff.
        statement: what was tried with it, and what came of that.
    """

    HUNK: ClassVar = re.compile(
        r"--- [^\n]+\n\+\+\+ [^\n]+\n@@ -(\d+)(?:,(\d+))? \+[\d,]+ @@\n"
        r"((?:[-+ \\][^\n]*\n)+)"
    )

    file: str
    line: int
    diff: str
    statement: str

    def problem(self) -> str:
        """Return what is wrong with the diff, "" if nothing is."""
        return "" if self.HUNK.fullmatch(self.diff) else "no unified diff of one hunk"


@dataclass(frozen=True)
class Finding:
    """A violation as it is stored: one folder in the corpus.

    Attributes:
        signature: kernel, contract, kind, output.
        target: where the kernel lives.
        operator: the operator's name.
        device: backend it was found on: "cpu", "interpret" or "cuda".
        case: the minimal input.
        first: the input as first found.
        failure: verdict and numbers on the minimal input.
        declaration: what the kernel claimed.
        fingerprint: the environment.
        state: where it stands in its life.
        history: how it came there, oldest first.
        explanation: what matters; None before it is known.
        reduction: how the minimum was reached; None before.
        seed: the run's seed.
        first_errors: the map of errors of the input as first found, where its
            output misses; that of the minimal one is the failure's own.
        mark: why it is known; None in other states.
        former: the ids that it had before it was shrunk further, oldest first.
        also: how else the same fault shows: each with the contract that it breaks.
        line: the line of source that it comes from; None where that is not known.
        patches: changes with which its kernel passes, where these were looked for.
    """

    UNSAID: ClassVar = ("first_errors", "mark", "also", "line", "patches")

    signature: Signature
    target: Target
    operator: str
    device: str
    case: Case
    first: Case
    failure: Failure
    declaration: Declaration
    fingerprint: Fingerprint
    state: State = State.NEW
    history: tuple[Change, ...] = ()
    explanation: Explanation | None = None
    reduction: Reduction | None = None
    seed: int = 0
    first_errors: ErrorMap | None = None
    mark: Mark | None = None
    former: tuple[str, ...] = ()
    also: tuple[Signature, ...] = ()
    line: Line | None = None
    patches: tuple[Patch, ...] = ()

    def __str__(self) -> str:
        """Return one line: what fails, its contract, state and id, then the values."""
        s = self.signature
        return (
            f"{s.kernel}: {s.summary} ({s.contract}, {self.state}; {self.id}): "
            f"{self.failure.message}"
        )

    @property
    def signatures(self) -> tuple[Signature, ...]:
        """Every way in which the fault is known to show, its own first."""
        return self.signature, *self.also

    @property
    def bucket(self) -> str:
        """Signature and necessary features, as one line of text."""
        s = self.signature
        kind = f"{s.kind}:{s.detail}" if s.detail else str(s.kind)
        parts = [s.kernel, s.contract, kind]
        if s.output:
            parts.append(s.output)
        if self.is_explained:
            parts += sorted(self.features)
        return " ".join(parts)

    @property
    def id(self) -> str:
        """`<kernel>-<class>-<8 hex of bucket>`, "new-…" before the explanation."""
        return self.folder.replace("/", "-", 1)

    @property
    def folder(self) -> str:
        """Folder below the corpus: `<kernel>/<class>-<8 hex>`."""
        s = self.signature
        if self.explanation is None:
            leaf = f"new-{short_hash(case_key(self.first))}"
        else:
            leaf = short_hash(self.bucket)
        return f"{safe_name(s.kernel)}/{safe_name(s.contract)}-{leaf}"

    @property
    def severity(self) -> Severity:
        """How grave it is."""
        return severity_of(self.signature, self.failure, self.features)

    @property
    def summary(self) -> str:
        """How it fails in a few words: "NaN missing in y (needs NaN in the input)"."""
        needed = needed_nonfinite(self.signature, self.failure.message, self.features)
        more = f" (needs {needed} in the input)" if needed else ""
        failure = self.failure
        if is_near(failure, contract_of(self.signature, failure.message)):
            more += f" ({failure.ratio:.3g} x tolerance)"
        return self.signature.summary + more

    @property
    def is_explained(self) -> bool:
        """Whether all that it needs is known."""
        return self.explanation is not None and self.explanation.complete

    @property
    def features(self) -> tuple[Feature, ...]:
        """What the failure is known to need."""
        return () if self.explanation is None else self.explanation.features

    @property
    def input_elements(self) -> int:
        """Elements over all tensor inputs of the minimal case."""
        return self.case.elements

    @property
    def nonzero_elements(self) -> int | None:
        """Non-zero elements over all tensor inputs, NaN included.

        None while a tensor of the case is not pinned.
        """
        total = 0
        for spec in self.case.tensors.values():
            if spec.values is None:
                return None
            width = 8 * DTYPES[spec.dtype].itemsize
            floating = DTYPES[spec.dtype].kind == "float"
            zeros = {0, 1 << (width - 1)} if floating else {0}
            patterns = unpack_bits(spec.values, spec.dtype)
            total += sum(p not in zeros for p in patterns)
        return total


def renamed(finding: Finding, *before: Finding) -> Finding:
    """Return a finding that is found by the ids of earlier forms of it, too."""
    ids = [id for other in (finding, *before) for id in other.former]
    ids += [other.id for other in before if other.explanation is not None]
    former = dict.fromkeys(id for id in ids if id != finding.id)
    return replace(finding, former=tuple(former))


def short_hash(text: str) -> str:
    """Return 8 hexadecimal digits of the text's SHA-256."""
    # A path's bytes that are no UTF-8 are surrogates here; files have any others, too.
    try:
        content = text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        content = text.encode(errors="surrogatepass")
    return hashlib.sha256(content).hexdigest()[:8]


def safe_name(text: str) -> str:
    """Return a name fit for folders and shells: the text itself where it is one.

    Else a likeness of it with a hash that keeps different texts apart.
    """
    likeness = re.sub(r"[^A-Za-z0-9_.-]", "_", text)[:MAX_NAME].lstrip(".-")
    if text and likeness == text:
        return text
    return f"{likeness or '_'}-{short_hash(text)}"


def case_key(case: Case) -> str:
    """Return a canonical text of a case: equal for equal recipes."""
    from kfuzz.core.codec import encode

    return json.dumps(encode(case), sort_keys=True)
