"""Findings: a violating case with everything needed to show and replay it."""

import hashlib
import json
import re
from dataclasses import dataclass, replace
from typing import Final

from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import DTYPES, unpack_bits
from kfuzz.core.fingerprint import Fingerprint
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Failure, Feature, Signature, State

# File systems allow 255 bytes; two names and two hashes make an id.
MAX_NAME: Final = 80


@dataclass(frozen=True)
class Target:
    """Where a kernel lives.

    Attributes:
        file: path of the defining file, relative to the project; "" where the
            kernel has no importable home or lies outside the project.
        name: the kernel's bound name.
        module: dotted module where the target was given as one, else "".
    """

    file: str
    name: str
    module: str = ""

    @property
    def node_id(self) -> str:
        """The one name of a kernel: path.py::name, or package.module:name."""
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
    """

    state: State
    when: str
    note: str = ""


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
    """

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


def merged(known: Finding, found: Finding) -> Finding:
    """Return one finding for two of the same bucket.

    The minimum is the known one unless the found one is smaller, or confirmed
    where the known one is not. The first case is the known one's. A state that
    people gave (known) stays; a confirmed state is not lost to a flaky one;
    otherwise the found state is the news. The history grows only with the state:
    a nightly job that finds a bug again adds nothing to it.
    """
    lasting = (State.KNOWN, State.CONFIRMED)
    better = found.state in lasting and known.state not in lasting
    worse = known.state in lasting and found.state not in lasting
    chosen = known
    if better or (not worse and _size(found) < _size(known)):
        chosen = found
    state = found.state
    if known.state is State.KNOWN or worse:
        state = known.state
    history = known.history
    if state is not known.state:
        history += tuple(c for c in found.history if c not in history)
    return replace(chosen, first=known.first, state=state, history=history)


def _size(finding: Finding) -> tuple[int, int]:
    nonzero = finding.nonzero_elements
    elements = finding.input_elements
    return elements, elements if nonzero is None else nonzero


def short_hash(text: str) -> str:
    """Return 8 hexadecimal digits of the text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


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
