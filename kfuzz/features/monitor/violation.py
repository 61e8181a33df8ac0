"""What is reported of a violation, how much of the data that is, and what is stored."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.core.errors import HarnessError
from kfuzz.core.finding import Finding, Target, host_fingerprint
from kfuzz.core.recipe import Case, Scalar
from kfuzz.core.verdict import Failure, Kind, Signature, State
from kfuzz.execution.device.backends import backend_of, sharing
from kfuzz.execution.interpreter.watch import interpreting
from kfuzz.execution.memory.placement import extent
from kfuzz.features.monitor.gate import Reason
from kfuzz.features.monitor.seen import Seen, TensorCopy
from kfuzz.features.monitor.subjects import Judged, Subject
from kfuzz.store.corpus import Corpus, Stored
from kfuzz.store.life import enter, merged

# Of two elements mean and deviation give both away, of a few a good guess.
FEWEST: Final = 32
"""Finite elements that statistics are of, at least, where no element is reported."""


_LOGGED: Final = (
    "function", "contract", "kind", "output", "elements", "ratio", "call", "why",
    "finding",
)  # fmt: skip


class Keep(StrEnum):
    """How much of a call's data leaves the monitor.

    FULL: the inputs themselves; only then are findings stored.
    SUMMARY: shapes, scalars, statistics, the least and the greatest element of each
        argument, and the numbers at the worst element.
    STATISTICS: shapes, how many elements are NaN or infinite, how many miss and by how
        many times the tolerance; of arguments with `FEWEST` finite elements or more
        their mean, deviation and number of zeros. No element, no index and no scalar.
        That is no anonymity: elements that are all alike, or one far above the others,
        show in a mean.
    """

    FULL = "full"
    SUMMARY = "summary"
    STATISTICS = "statistics"


@dataclass(frozen=True)
class TensorSummary:
    """What is reported of a tensor in place of its elements.

    Attributes:
        shape: sizes.
        dtype: torch's name without the prefix.
        strides: in elements.
        device: where it lay.
        mean, deviation: of its finite elements; None where it has none, holds no
            numbers, or they may not be reported.
        least, greatest: two of its finite elements; None likewise, and always where
            statistics alone are kept.
        nan, infinite: how many elements are so.
        zero: likewise; None where it may not be reported.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    device: str
    mean: float | None = None
    deviation: float | None = None
    least: float | None = None
    greatest: float | None = None
    nan: int = 0
    infinite: int = 0
    zero: int | None = 0


@dataclass(frozen=True)
class Violation:
    """One call that broke its contract.

    Attributes:
        function: name of the monitored function.
        operator: name of what it is held to.
        contract: the contract class, e.g. "C-PRC-01"; provisional until the finding
            is shrunk, since one call cannot distinguish all classes.
        kind: how it shows.
        output: the result concerned, "" for none.
        message: one line.
        elements: how many elements of that result miss.
        ratio: |error| / tolerance at the worst element; None where that is 0.
        index: logical index of the worst element.
        actual: what the function gave there.
        expected: the reference there.
        low, high: what is allowed there.
        inputs: what is reported of each tensor argument.
        scalars: the other arguments.
        values: the tensor arguments as they were before the call, on the CPU; None
            unless everything is kept.
        call: number of the call.
        why: why it was looked at.
        when: UTC time, ISO 8601 to the second.
        finding: id of the stored finding, "" where none was stored.
        path: its folder, "" likewise.
    """

    function: str
    operator: str
    contract: str
    kind: Kind
    output: str
    message: str
    elements: int
    ratio: float | None
    inputs: Mapping[str, TensorSummary]
    call: int
    why: Reason
    when: str
    index: tuple[int, ...] | None = None
    actual: float | None = None
    expected: float | None = None
    low: float | None = None
    high: float | None = None
    scalars: Mapping[str, Scalar] = field(default_factory=dict)
    values: Mapping[str, Tensor] | None = field(default=None, repr=False)
    finding: str = ""
    path: str = ""

    def fields(self) -> dict[str, Any]:
        """Return what structured logs hold: plain values, no tensor."""
        found = {name: getattr(self, name) for name in _LOGGED}
        return {
            f"kfuzz_{name}": str(value) if isinstance(value, StrEnum) else value
            for name, value in found.items()
        }


def violation_of(
    failure: Failure,
    seen: Seen,
    *,
    keep: Keep,
    scalars: Mapping[str, Scalar],
    **known: Any,
) -> Violation:
    """Return the evidence of a failure, as far as the data may be reported.

    Args:
        failure: as the judge attributed it.
        seen: the call.
        keep: how much is reported.
        scalars: the arguments that are no tensors.
        known: what `Violation` says of function and call: function, operator, call,
            why, when, finding and path.
    """
    # The message quotes the worst element.
    what = f"{failure.output}: " if failure.output else ""
    message = f"{what}{failure.kind} ({failure.contract})"
    more: dict[str, Any] = {}
    if keep is not Keep.STATISTICS:
        message = failure.message
        more = {
            "index": failure.index, "actual": failure.got, "low": failure.low,
            "expected": failure.expected, "high": failure.high,
            "scalars": dict(scalars),
        }  # fmt: skip
    if keep is Keep.FULL:
        more["values"] = {n: copy.values.clone() for n, copy in seen.tensors.items()}
    return Violation(
        contract=failure.contract, kind=failure.kind, output=failure.output,
        message=message, elements=failure.elements, ratio=failure.ratio,
        inputs={
            name: summary_of(copy, elements=keep is not Keep.STATISTICS)
            for name, copy in seen.tensors.items()
        },
        **more, **known,
    )  # fmt: skip


def summary_of(copy: TensorCopy, *, elements: bool) -> TensorSummary:
    """Return what is reported of a tensor.

    Args:
        copy: the tensor.
        elements: whether single elements may be reported.
    """
    made = TensorSummary(
        copy.shape, str(copy.dtype).removeprefix("torch."), copy.strides,
        str(copy.device),
    )  # fmt: skip
    if copy.dtype is torch.bool or not copy.values.numel():
        return made
    wide = copy.values.to(torch.float64)
    finite = wide[torch.isfinite(wide)]
    few = not elements and finite.numel() < FEWEST
    some = bool(finite.numel()) and not few
    return replace(
        made,
        mean=float(finite.mean()) if some else None,
        deviation=float(finite.std(unbiased=False)) if some else None,
        least=float(finite.min()) if some and elements else None,
        greatest=float(finite.max()) if some and elements else None,
        nan=int(wide.isnan().sum()), infinite=int(wide.isinf().sum()),
        zero=None if few else int((finite == 0).sum()),
    )  # fmt: skip


# Violations as findings of a corpus: what `kfuzz shrink` and `kfuzz replay` take.

MOST: Final = 3
"""Findings of one signature that are stored; a fault that shows in every batch would
fill the disk."""


class Store:
    """Puts findings into a corpus; for the worker alone.

    Attributes:
        corpus: the corpus.
    """

    def __init__(self, path: str | Path) -> None:
        self.corpus = Corpus(Path(path))
        self._stored: dict[Signature, int] = {}

    def save(self, subject: Subject, judged: Judged, seen: Seen) -> tuple[str, str]:
        """Store a violating call.

        Returns:
            Its id and folder; "" twice where enough of its kind are stored.

        Raises:
            HarnessError: if the disk refuses.
        """
        failure = judged.report.failure
        assert failure is not None
        made = finding_of(subject, judged, failure, seen)
        count = self._stored.get(made.signature)
        if count is None:
            entries = self.corpus.entries(made.signature.kernel)
            found = (e.finding.signature for e in entries if isinstance(e, Stored))
            count = sum(s.symptom == made.signature.symptom for s in found)
        self._stored[made.signature] = count
        if count >= MOST:
            return "", ""

        def join(held: Finding | None) -> Finding:
            """Keep what was reported of the very same call before, a mark above all."""
            alike = held is not None and held.signature == made.signature
            return merged(held, made) if held is not None and alike else made

        stored = self.corpus.change(made, join)
        assert stored is not None
        self._stored[made.signature] += 1
        return stored.id, str(self.corpus.root / stored.folder)


def finding_of(
    subject: Subject, judged: Judged, failure: Failure, seen: Seen
) -> Finding:
    """Return a violating call as a finding, its inputs pinned."""
    devices = [c.device for c in seen.tensors.values()]
    elsewhere = (d for d in devices if not backend_of(d).has.on_host)
    device = next(elsewhere, torch.device("cpu"))
    backend = backend_of(device)
    if interpreting():
        alike = sharing(backend.torch_type)
        backend = next((b for b in alike if not b.has.native), backend)
    name, driver = backend.describe(str(device))
    target = subject.target if judged.replayable else Target("", subject.name)
    case = placeable(judged.case)
    made = Finding(
        signature=failure.signature(subject.name),
        target=target,
        operator=subject.operator_name,
        device=backend.name,
        case=case,
        first=case,
        failure=failure,
        declaration=subject.declaration,
        fingerprint=host_fingerprint(device=name, driver=driver, flags=backend.flags()),
        first_errors=failure.errors,
    )
    return enter(made, State.NEW, "seen by the monitor")


def placeable(case: Case) -> Case:
    """Return a case that memory can be laid out for.

    Elements that overlap other than by a stride of 0 lie side by side instead.
    """
    tensors = {}
    for name, spec in case.tensors.items():
        try:
            extent(name, spec)
        except HarnessError:
            spec = replace(spec, strides=None)
        tensors[name] = spec
    return replace(case, tensors=tensors)
