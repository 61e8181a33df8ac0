"""Upkeep of a corpus: marks that people make, corpora merged, what is over dropped."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Final

from kfuzz.core.errors import HarnessError, UsageError
from kfuzz.core.finding import Finding, Mark
from kfuzz.core.verdict import Feature, State
from kfuzz.store.corpus import Corpus, Problem, Stored
from kfuzz.store.files import share_runs
from kfuzz.store.life import MARKS, covering, joined, marked, under

_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


class Did(StrEnum):
    """What was done with an entry."""

    MARKED = "marked"
    FOLLOWED = "followed"  # another one's mark
    ADDED = "added"
    JOINED = "joined"
    SAME = "same"
    SKIPPED = "skipped"
    DROPPED = "dropped"


@dataclass(frozen=True)
class Deed:
    """What was done with one entry, or would be.

    Attributes:
        id: of the finding; the path where it cannot be read.
        did: what.
        why: one line.
        before: its state before; None where it was not there.
        after: its state after; None where it is gone.
    """

    id: str
    did: Did
    why: str = ""
    before: State | None = None
    after: State | None = None


def mark(
    corpus: Corpus,
    entries: Sequence[Stored],
    state: State,
    *,
    reason: str = "",
    link: str = "",
    features: Collection[Feature] = (),
) -> list[Deed]:
    """Give findings the state that people know them to be in.

    Findings of a signature that becomes known become known with it; those that were
    known with one that is so no more take its new state.

    Args:
        corpus: holds them.
        entries: the findings.
        state: known, fixed, or new: neither of the two any more.
        reason: why; needed where they are known.
        link: an http or https address with more of it.
        features: that the mark is confined to; empty for all of the signature.

    Raises:
        UsageError: if one of them cannot be marked so; then none is.
        HarnessError: if the disk refuses.
    """
    if state not in MARKS:
        raise UsageError(f"nobody marks a finding {state}")
    if state is State.KNOWN and not reason.strip():
        raise UsageError("a known finding needs a reason", fix='add --reason "…"')
    if features and state is not State.KNOWN:
        raise UsageError("only a known finding's mark names features")
    text = reason + (f" ({link})" if link else "")
    own = None
    if state is State.KNOWN:
        own = Mark(reason, link, tuple(sorted(features)))
    for entry in entries:
        _require_markable(corpus, entry, features)
    deeds = []
    for entry in entries:
        before = entry.finding.state
        made = _change(
            corpus, entry.finding, partial(marked, state=state, note=text, mark=own)
        )
        if made is None:
            raise UsageError("it is gone", where=entry.finding.id)
        deeds.append(Deed(made.id, Did.MARKED, text, before, made.state))
        deeds += _follow(corpus, made)
    return deeds


def merge(corpus: Corpus, other: Corpus) -> Iterator[Deed]:
    """Take in the findings and runs of another corpus, which stays as it is.

    Of one bucket the smaller minimum is kept, and both histories, which decide the
    state (see `kfuzz.store.life.joined`).

    Yields:
        What was done with each entry of the other one.

    Raises:
        HarnessError: if the disk refuses.
    """
    kernels: dict[str, None] = {}  # each once, in order
    for entry in other.entries():
        if isinstance(entry, Problem):
            yield Deed(str(entry.path), Did.SKIPPED, entry.what)
            continue
        kernels[entry.finding.signature.kernel] = None
        yield _taken(corpus, entry)
    for kernel in kernels:
        yield from _cover(corpus, kernel)
    share_runs(corpus.root, other.root)


def prune(corpus: Corpus, *, older_than: float, apply: bool) -> list[Deed]:
    """Remove findings that are over: fixed long since, never reproduced, or twice.

    The histories of several entries of one bucket go to the one that stays.

    Args:
        corpus: the corpus.
        older_than: seconds since a finding was fixed.
        apply: whether to do it; else it is only said.

    Raises:
        HarnessError: if the disk refuses.
    """
    deeds, kept = [], []
    now = datetime.now(UTC)
    for entry in corpus.entries():
        if isinstance(entry, Problem):
            continue
        why = _over(entry.finding, now, older_than)
        if not why:
            kept.append(entry.finding)
        elif not apply or _dropped(corpus, entry.finding):
            state = entry.finding.state
            deeds.append(Deed(entry.finding.id, Did.DROPPED, why, state))
    buckets: dict[str, list[Finding]] = {}
    for finding in kept:
        buckets.setdefault(finding.bucket, []).append(finding)
    for alike in buckets.values():
        if len(alike) > 1:
            deeds += _thinned(corpus, alike, apply=apply)
    return deeds


def _change(
    corpus: Corpus, finding: Finding, to: Callable[[Finding], Finding]
) -> Finding | None:
    """Change a stored finding, alone at it; return None where it is gone."""
    return corpus.change(finding, lambda now: None if now is None else to(now))


def _require_markable(
    corpus: Corpus, entry: Stored, features: Collection[Feature]
) -> None:
    """Check that an entry lies in the corpus and needs the features.

    Raises:
        UsageError: if not.
    """
    finding = entry.finding
    if corpus.get(finding) is None:
        fix = "name the corpus with --corpus"
        raise UsageError("is not of this corpus", where=str(entry.path), fix=fix)
    needs = finding.features if finding.is_explained else ()
    lacks = sorted(set(features) - set(needs))
    if lacks:
        fix = f"what it needs: {', '.join(needs) or 'none that is known'}"
        what = f"does not need {', '.join(lacks)}"
        raise UsageError(what, where=finding.id, fix=fix)


def _follow(corpus: Corpus, leader: Finding) -> list[Deed]:
    """Give findings the state of one that was marked, where it is theirs too."""
    if leader.state is State.KNOWN:
        return list(_cover(corpus, leader.signature.kernel))
    deeds, why = [], f"as {leader.id} is"
    for known in corpus.marks(leader.signature.kernel):
        if known.mark is None or known.mark.of != leader.id:
            continue
        made = _change(corpus, known, partial(marked, state=leader.state, note=why))
        if made is not None:
            deeds.append(Deed(made.id, Did.FOLLOWED, why, known.state, made.state))
    return deeds


def _cover(corpus: Corpus, kernel: str) -> Iterator[Deed]:
    """Make findings of a kernel known that a mark covers."""
    marks = corpus.marks(kernel)
    for entry in corpus.entries(kernel) if marks else ():
        if isinstance(entry, Problem):
            continue
        known = covering(marks, entry.finding)
        if known is None:
            continue
        before, why = entry.finding, f"as {known.id} is"
        if (made := _change(corpus, before, partial(under, known))) is not None:
            yield Deed(made.id, Did.FOLLOWED, why, before.state, made.state)


def _taken(corpus: Corpus, entry: Stored) -> Deed:
    """Store an entry of another corpus, joined with what this one holds."""
    before: Finding | None = None

    def join(ours: Finding | None) -> Finding:
        nonlocal before
        before = ours
        return entry.finding if ours is None else joined(ours, entry.finding)

    try:
        made = corpus.change(entry.finding, join)
    except HarnessError as error:
        if corpus.get(entry.finding) is not None:
            raise  # it is the disk
        return Deed(entry.finding.id, Did.SKIPPED, str(error))
    assert made is not None
    if before is None:
        return Deed(made.id, Did.ADDED, made.failure.message, None, made.state)
    if made == before:
        return Deed(made.id, Did.SAME, "", before.state, made.state)
    why = "its history grew"
    if made.case != before.case:
        elements = made.input_elements, before.input_elements
        why = "a minimum of {} elements for {}".format(*elements)
    return Deed(made.id, Did.JOINED, why, before.state, made.state)


def _over(finding: Finding, now: datetime, older_than: float) -> str:
    """Return why a finding may be dropped; "" where it may not."""
    if finding.state is State.UNREPRODUCED:
        return "seen once, and never again"
    if finding.state is not State.FIXED:
        return ""
    since = [c.when for c in finding.history if c.state is State.FIXED]
    try:
        fixed = datetime.strptime(max(since, default=""), _TIME).replace(tzinfo=UTC)
    except ValueError:
        return ""  # nobody knows since when
    age = (now - fixed).total_seconds()
    return f"fixed since {max(since)}" if age > older_than else ""


def _dropped(corpus: Corpus, finding: Finding) -> bool:
    """Remove an entry, unless it has changed since it was looked at."""
    left = corpus.change(finding, lambda now: None if now == finding else now)
    return left is None


def _thinned(corpus: Corpus, alike: list[Finding], *, apply: bool) -> Iterator[Deed]:
    """Leave one entry of a bucket, the explained one with the smallest minimum."""

    def rank(finding: Finding) -> tuple[bool, int, str]:
        return finding.explanation is None, finding.input_elements, finding.id

    best, *others = sorted(alike, key=rank)
    for other in others:
        why = f"the same bucket as {best.id}"
        if not apply or (_heir(corpus, best, other) and _dropped(corpus, other)):
            yield Deed(other.id, Did.DROPPED, why, other.state)


def _heir(corpus: Corpus, best: Finding, other: Finding) -> bool:
    """Add to an entry the history of another one of its bucket before that goes."""

    def to(now: Finding) -> Finding:
        made = joined(now, other)
        return replace(now, state=made.state, history=made.history, mark=made.mark)

    return _change(corpus, best, to) is not None
