"""A finding's place in the corpus while it changes."""

from kfuzz.core.finding import Finding
from kfuzz.core.life import covering, under
from kfuzz.corpus import Corpus


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
        self.finding = finding
        self.is_new = corpus.get(finding) is None
        marks = corpus.marks(finding.signature.kernel)
        self.is_known = covering(marks, finding) is not None
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
