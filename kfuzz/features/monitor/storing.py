"""Violations as findings of a corpus: what `kfuzz shrink` and `kfuzz replay` take."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import torch

from kfuzz.core.errors import HarnessError
from kfuzz.core.finding import Finding, Target, host_fingerprint
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Failure, Signature, State
from kfuzz.execution.device.backends import backend_of, sharing
from kfuzz.execution.interpreter.watch import interpreting
from kfuzz.execution.memory.placement import extent
from kfuzz.features.monitor.seen import Seen
from kfuzz.features.monitor.subjects import Judged, Subject
from kfuzz.store.corpus import Corpus, Stored
from kfuzz.store.life import enter, merged

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
            """Keep what was told of the very same call before, a mark above all."""
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
