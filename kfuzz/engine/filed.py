"""A finding's place in the corpus while it changes."""

from kfuzz.core.finding import Finding
from kfuzz.core.verdict import State
from kfuzz.corpus import Corpus, Stored
from kfuzz.engine.lifecycle import enter


class FiledFinding:
    """A finding's place in the corpus, as the finding changes.

    Attributes:
        finding: as stored last.
        path: its folder.
        is_new: whether the corpus did not hold its bucket before.
    """

    def __init__(self, corpus: Corpus, finding: Finding) -> None:
        self._corpus = corpus
        self.finding = finding
        self.is_new = corpus.get(finding) is None
        self.path = corpus.save(finding)

    def save(self, finding: Finding) -> Finding:
        """Store the finding in place of its earlier form."""
        if finding.id != self.finding.id:
            self.is_new = self._corpus.get(finding) is None
        self.path = self._corpus.replace(self.finding, finding)
        self.finding = finding
        return finding

    def settle(self) -> Finding:
        """Return the finding as the corpus holds it, merged with what it held.

        A finding whose signature a known entry has is known too.
        """
        stored = self._corpus.get(self.finding)
        final = self.finding if stored is None else stored.finding
        if final.state is State.CONFIRMED and self._is_known(final):
            final = enter(final, State.KNOWN, "its signature is known")
            self.path = self._corpus.save(final)
        self.finding = final
        return final

    def _is_known(self, finding: Finding) -> bool:
        entries = (e.finding for e in self._corpus.entries() if isinstance(e, Stored))
        return any(
            e.state is State.KNOWN and e.signature == finding.signature for e in entries
        )
