"""Findings of many workers in one corpus: each is kept once, and told once.

A finding is known by its content: before it is reduced by its first case, then by its
bucket. A unit that is done anew finds the same again, and nothing is said of it.
"""

from dataclasses import replace

from kfuzz.core.event import FindingSaved
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import FAILING, State
from kfuzz.engine.search.filed import FiledFinding
from kfuzz.fleet.work import key_of
from kfuzz.store.corpus import Corpus


class Filing:
    """The corpus of a run, whose only writer this is.

    Args:
        corpus: where findings are kept.
    """

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        # By the first case; by the unit that reduces it; by the id that was told.
        self._begun: dict[str, FiledFinding] = {}
        self._open: dict[int, FiledFinding] = {}
        self._told: dict[str, FiledFinding] = {}
        # Findings of the run by kernel and id, and their folders.
        self._kept: dict[str, dict[str, Finding]] = {}
        self._paths: dict[str, str] = {}
        self._stored: set[str] = set()

    def file(self, unit: int, event: FindingSaved) -> FindingSaved | None:
        """Keep what a unit tells of a finding.

        Args:
            unit: its number, the same when it is done anew.
            event: as the unit's own campaign told it.

        Returns:
            What is to be told; None where that was told already.

        Raises:
            StorageError: if it cannot be kept.
        """
        if event.stage == "found":
            return self._found(unit, event)
        return self._done(unit, event)

    def of(self, kernel: str) -> tuple[Finding, ...]:
        """Return the findings of a kernel."""
        return tuple(self._kept.get(kernel, {}).values())

    def paths(self, kernel: str) -> dict[str, str]:
        """Return the folders of the findings of a kernel, by id."""
        return {id: self._paths[id] for id in self._kept.get(kernel, {})}

    def confirmed(self) -> int:
        """Return how many new findings are confirmed."""
        kept = (f for found in self._kept.values() for f in found.values())
        return sum(f.state in FAILING and f.id not in self._stored for f in kept)

    def unknown(self, kernel: str) -> int:
        """Return how many findings of a kernel nobody knew of."""
        return sum(
            f.state is not State.KNOWN and f.id not in self._stored
            for f in self.of(kernel)
        )

    def _found(self, unit: int, event: FindingSaved) -> FindingSaved | None:
        key = key_of(event.finding)
        if (entry := self._begun.get(key)) is not None:
            self._open[unit] = entry
            return None
        entry = FiledFinding(self._corpus, event.finding)
        self._begun[key] = self._open[unit] = entry
        self._keep(event.kernel, entry)
        path = str(entry.path)
        return replace(
            event, finding=entry.finding, path=path, is_new=not entry.is_known
        )

    def _done(self, unit: int, event: FindingSaved) -> FindingSaved | None:
        finding, replaces = event.finding, event.replaces
        entry = self._open.pop(unit, None)
        if replaces:
            entry = self._told.get(replaces)
            if entry is None and finding.id in self._told:
                return None  # by an earlier attempt
            if entry is None:
                replaces = ""
        elif entry is None:
            entry = self._begun.get(key_of(finding)) or self._told.get(finding.id)
        known = self._told.get(finding.id)
        if entry is None:
            entry = FiledFinding(self._corpus, finding)
        else:
            self._drop(event.kernel, entry)
            entry.save(finding)
        final = entry.settle()
        told = known is not None or final.id in self._told
        is_new = event.is_new and entry.is_new and not told
        self._told[final.id] = entry
        if not event.is_new and not told and not replaces:
            self._stored.add(final.id)
        self._keep(event.kernel, entry)
        if told and not replaces:
            return None
        return replace(
            event, finding=final, path=str(entry.path), is_new=is_new, replaces=replaces
        )

    def _drop(self, kernel: str, entry: FiledFinding) -> None:
        """Forget an entry's earlier form, unless another entry has its id."""
        id = entry.finding.id
        if self._told.get(id, entry) is entry:
            self._kept.get(kernel, {}).pop(id, None)

    def _keep(self, kernel: str, entry: FiledFinding) -> None:
        self._kept.setdefault(kernel, {})[entry.finding.id] = entry.finding
        self._paths[entry.finding.id] = str(entry.path)
