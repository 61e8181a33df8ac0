"""A finding's place in the corpus, while a run changes the finding."""

from kfuzz.core.finding import Finding
from kfuzz.store.corpus import Corpus
from kfuzz.store.life import covering, merged, under


class FiledFinding:
    """A finding's place in the corpus, as the finding changes.

    Attributes:
        finding: as stored last.
        path: its folder.
        is_new: whether the corpus did not hold its bucket before.
        is_known: whether a mark of its whole signature made it known when it was
            found.
    """

    def __init__(self, corpus: Corpus, finding: Finding) -> None:
        self._corpus = corpus
        # What earlier runs and people told of the very same case, where it was not
        # explained: nothing of it is lost because it is found again.
        self._held: Finding | None = None

        def join(held: Finding | None) -> Finding:
            self._held = held
            return self._joined(finding)

        marks = corpus.marks(finding.signature.kernel)
        self.is_known = covering(marks, finding) is not None
        stored = corpus.change(finding, join)
        assert stored is not None
        self.finding, self.path = stored, corpus.root / stored.folder
        self.is_new = self._held is None

    def save(self, finding: Finding) -> Finding:
        """Store the finding in place of its earlier form, and return it as it is."""
        if finding.id != self.finding.id:
            self.is_new = self._corpus.get(finding) is None
        stored = self._joined(finding)
        self.path = self._corpus.replace(self.finding, stored)
        self.finding = stored
        return finding

    def _joined(self, finding: Finding) -> Finding:
        """Return a form of the finding with what its entry held when it was found."""
        held = self._held
        if held is None or held.id != finding.id:
            return finding
        if held.signature != finding.signature:
            return finding  # the case fails another way: a mark does not hold for it
        return merged(held, finding)

    def settle(self) -> Finding:
        """Return the finding as the corpus holds it, merged with what it held.

        A finding that the mark of a known one covers is known too.
        """
        marks = self._corpus.marks(self.finding.signature.kernel)

        def settled(stored: Finding | None) -> Finding:
            final = stored or self.finding
            known = covering(marks, final)
            return final if known is None else under(known, final)

        final = self._corpus.change(self.finding, settled)
        assert final is not None
        self.finding = final
        return final
