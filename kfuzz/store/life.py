"""The life of a finding: what each result, and each mark, makes of it.

    new ─► confirmed | witnessed | flaky | unreproduced ─► known ─► fixed ─► regressed

What a run sees is a result; `known`, `fixed` and `new` again are marks that people
make, which results do not undo: a known finding stays known, and a fixed one that is
confirmed again has regressed.
"""

import heapq
from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from kfuzz.core.finding import Change, Finding, Mark, renamed
from kfuzz.core.verdict import FAILING, Signature, State

REGRESSED: Final = "was fixed, and fails again"
# People say these; runs find out the others.
MARKS: Final = (State.KNOWN, State.FIXED, State.NEW)

# What a failure that shows at times does not put in question.
_LASTING: Final = FAILING | {State.KNOWN}


def utc_now() -> str:
    """Return the time as a history writes it: UTC, ISO 8601 to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def enter(finding: Finding, state: State, note: str = "") -> Finding:
    """Return the finding in a state, with the change in its history."""
    return _changed(finding, Change(state, utc_now(), note))


def after(state: State, change: Change) -> State:
    """Return the state of a finding in a state once a change has come to it."""
    if change.marked:
        return change.state
    match change.state:
        case State.CONFIRMED | State.WITNESSED | State.KNOWN if state in (
            State.FIXED,
            State.REGRESSED,
        ):
            return State.REGRESSED
        case State.CONFIRMED | State.WITNESSED | State.REGRESSED if (
            state is State.KNOWN
        ):
            return State.KNOWN
        case State.WITNESSED if state is State.CONFIRMED:
            return state
        case State.FLAKY if state in _LASTING:
            return state
        case State.UNREPRODUCED if state is not State.NEW:
            return state
        case State.NEW:
            return state
        case result:
            return result


def merged(known: Finding, found: Finding) -> Finding:
    """Return one finding for one that is stored and one of its bucket just found.

    The minimum is the known one unless the found one is smaller, or confirmed where
    the known one is not. The first case is the known one's. The history grows only
    with the state: a nightly job that finds a bug again adds nothing to it.
    """
    results = [c for c in _history(found) if c not in known.history]
    state, changes = _followed(known.state, results)
    chosen = _minimum(known, found, _LASTING)
    if state is known.state:
        changes = []
    return replace(
        chosen,
        first=known.first,
        first_errors=known.first_errors,
        state=state,
        history=known.history + tuple(changes),
        mark=(known.mark or found.mark) if state is State.KNOWN else None,
        former=renamed(chosen, known, found).former,
        also=_also(chosen, known, found),
    )


def joined(ours: Finding, theirs: Finding) -> Finding:
    """Return one finding for two of one bucket that were kept apart.

    Both histories are kept, in the order of their times, and the state is what they
    lead to: the later of two marks holds, and what was confirmed after it was fixed
    has regressed. The minimum is the smaller one, ours among equals; the first case
    is that of the finding that was found first.
    """
    if ours == theirs:
        return ours
    own = _history(ours)
    other = [change for change in _history(theirs) if change not in own]
    events = heapq.merge(own, other, key=lambda change: change.when)
    state, changes = _followed(State.NEW, events)
    earlier = ours
    if ours.explanation is not None and _began(theirs) < _began(ours):
        earlier = theirs  # the place of one without explanation is its first case's
    # What regressed fails now as it was found last; it need not as it was fixed.
    settled = _LASTING if state is State.REGRESSED else _LASTING | {State.FIXED}
    chosen = _minimum(ours, theirs, settled)
    return replace(
        chosen,
        first=earlier.first,
        first_errors=earlier.first_errors,
        state=state,
        history=tuple(changes),
        mark=_later_mark(ours, theirs) if state is State.KNOWN else None,
        former=renamed(chosen, ours, theirs).former,
        also=_also(chosen, ours, theirs),
    )


def with_marks(new: Finding, held: Finding) -> Finding:
    """Return a form of a finding with the marks that the stored one got meanwhile."""
    if not any(c.marked and c not in new.history for c in held.history):
        return new
    made = joined(held, new)
    return replace(new, state=made.state, history=made.history, mark=made.mark)


def marked(
    finding: Finding, state: State, note: str = "", *, mark: Mark | None = None
) -> Finding:
    """Return the finding in the state that a person gave it.

    Args:
        finding: as it stands.
        state: one of `MARKS`.
        note: why; that of a mark is made of it.
        mark: why it is known, where it is.
    """
    if mark is not None:
        note = mark.reason + (f" ({mark.link})" if mark.link else "")
    change = Change(state, utc_now(), note, marked=True)
    return replace(_changed(finding, change), mark=mark)


def covers(known: Finding, finding: Finding) -> bool:
    """Whether a mark of one finding makes another one known.

    It does for all of its signature, or for those that need all features that it
    names. What a finding needs is not known before it is explained in full.
    """
    if known.state is not State.KNOWN or known.signature != finding.signature:
        return False
    mark = known.mark or Mark("")
    if mark.of:
        return False  # the finding whose mark it is says so itself
    if not mark.features:
        return True
    return finding.is_explained and set(mark.features) <= set(finding.features)


def under(known: Finding, finding: Finding) -> Finding:
    """Return a finding as known under the mark of one that `covers` it."""
    mark = replace(known.mark or Mark(""), of=known.id)
    note = f"known as {known.id} is" + (f": {mark.reason}" if mark.reason else "")
    return replace(enter(finding, State.KNOWN, note), mark=mark)


def covering(marks: Iterable[Finding], finding: Finding) -> Finding | None:
    """Return the finding whose mark makes this one known, if any does.

    Neither what was marked itself nor what was fixed becomes known by another's mark.
    """
    if finding.state not in (State.NEW, State.CONFIRMED, State.WITNESSED):
        return None
    return next((m for m in marks if covers(m, finding)), None)


def _also(chosen: Finding, *every: Finding) -> tuple[Signature, ...]:
    """Return how else the fault of several findings shows that become one of them."""
    shown = dict.fromkeys(s for finding in every for s in finding.signatures)
    return tuple(s for s in shown if s != chosen.signature)


def _changed(finding: Finding, change: Change) -> Finding:
    mark = finding.mark if change.state is State.KNOWN else None
    history = (*finding.history, change)
    return replace(finding, state=change.state, history=history, mark=mark)


def _followed(state: State, events: Iterable[Change]) -> tuple[State, list[Change]]:
    """Return the state after the events, and these with what follows from them."""
    changes: list[Change] = []
    for change in events:
        if change not in changes[-1:]:
            changes.append(change)
        new = after(state, change)
        if new is State.REGRESSED and state is not new is not change.state:
            changes.append(Change(new, change.when, REGRESSED))
        state = new
    return state, changes


def _history(finding: Finding) -> tuple[Change, ...]:
    """Return the history; a state that it does not lead to was written by hand.

    Then it ends with that state here.
    """
    history, state = finding.history, finding.state
    if _followed(State.NEW, history)[0] is state:
        return history
    when = history[-1].when if history else ""
    by_hand = state in (State.KNOWN, State.FIXED)
    return (*history, Change(state, when, "as it was stored", by_hand))


def _began(finding: Finding) -> str:
    return finding.history[0].when if finding.history else ""


def _later_mark(ours: Finding, theirs: Finding) -> Mark | None:
    def since(finding: Finding) -> str:
        when = (c.when for c in finding.history if c.state is State.KNOWN)
        return max(when, default="")

    known = [f for f in (theirs, ours) if f.mark is not None]
    return max(known, key=since).mark if known else None


def _minimum(known: Finding, found: Finding, settled: Collection[State]) -> Finding:
    """Return the one with the smaller minimum, a settled one before others."""
    better = found.state in settled and known.state not in settled
    worse = known.state in settled and found.state not in settled
    if better or (not worse and _size(found) < _size(known)):
        return found
    return known


def _size(finding: Finding) -> tuple[int, int]:
    nonzero = finding.nonzero_elements
    elements = finding.input_elements
    return elements, elements if nonzero is None else nonzero
