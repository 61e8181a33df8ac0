"""Findings: a violating case with everything needed to show and replay it."""

import hashlib
import json
import re
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import DTYPES, unpack_bits
from kfuzz.core.error_map import ErrorMap
from kfuzz.core.fingerprint import Fingerprint
from kfuzz.core.recipe import Case
from kfuzz.core.severity import Severity, needed_nonfinite, severity_of
from kfuzz.core.verdict import Failure, Feature, Signature, State

# File systems allow 255 bytes; two names and two hashes make an id.
MAX_NAME: Final = 80


ATEN: Final = "aten::"
"""What stands before a module whose implementations of torch's overloads are bound."""


@dataclass(frozen=True)
class Target:
    """Where a kernel lives.

    Attributes:
        file: path of the defining file, relative to the project; "" where the
            kernel has no importable home or lies outside the project.
        name: the kernel's bound name.
        module: dotted module where the target was given as one, behind "aten::" where
            it was given as a package that overrides torch's operators; else "".
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
    """

    UNSAID: ClassVar = ("first_errors", "mark")

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

    def __str__(self) -> str:
        """Return one line: what fails, its contract, state and id, then the values."""
        s = self.signature
        return (
            f"{s.kernel}: {s.summary} ({s.contract}, {self.state}; {self.id}): "
            f"{self.failure.message}"
        )

    @property
    def bucket(self) -> str:
        """Signature and necessary features, as one line of text."""
        s = self.signature
        kind = f"{s.kind}:{s.detail}" if s.detail else str(s.kind)
        parts = [s.kernel, s.contract, kind]
        if s.output:
            parts.append(s.output)
        if self.explanation is not None and self.explanation.complete:
            parts += sorted(self.explanation.features)
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
    def is_cut_short(self) -> bool:
        """Whether a clock ended its reduction or its explanation."""
        if self.reduction is None or not self.case.pinned or self.case.large:
            return False  # none was begun
        explained = self.explanation is None or self.explanation.complete
        return self.reduction.stopped == "time" or not explained

    @property
    def severity(self) -> Severity:
        """How grave it is."""
        return severity_of(self.signature, self.failure.message, self._features)

    @property
    def summary(self) -> str:
        """How it fails in a few words: "NaN missing in y (needs NaN in the input)"."""
        needed = needed_nonfinite(self.signature, self.failure.message, self._features)
        more = f" (needs {needed} in the input)" if needed else ""
        return self.signature.summary + more

    @property
    def _features(self) -> tuple[Feature, ...]:
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
