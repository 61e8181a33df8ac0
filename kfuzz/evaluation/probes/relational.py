"""What protocols share that run a conforming case in a changed form."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeVar

from kfuzz.contracts.changed import Changed
from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.derive import Derived
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.reading import decided, miss_of
from kfuzz.core.random_streams import Purpose, stream
from kfuzz.core.recipe import Case
from kfuzz.evaluation.case_calls import CaseCalls
from kfuzz.evaluation.probes.repeating import judge_repeated

T = TypeVar("T")

PLAIN: Final = frozenset({"K-VAL-01", "C-CMP-01"})
"""The classes of a miss that no more specific one claims."""


def apart(calls: CaseCalls, given: Derived) -> Evidence | None:
    """Return the evidence of a case run in memory that no recent call has met.

    None where nothing of it could be judged.
    """
    evidence = calls.caller.apart()(given)
    return None if evidence is None or not decided(evidence) else evidence


def is_plain(calls: CaseCalls, given: Derived) -> bool:
    """Whether a changed case fails, and for no reason of its own.

    What is a narrow accumulator there, or a tail, is that class's, and found under it
    where such a case is drawn.
    """
    evidence = calls.caller.apart()(given)
    if evidence is None or miss_of(evidence) is None:
        return False
    own = replace(calls, derived=given)
    failure = judge_repeated(evidence, own, CLASSES)[2]
    return failure is not None and failure.contract in PLAIN


def pick(case: Case, choices: Sequence[T]) -> list[T]:
    """Return the one choice that a case's seed names, none if there are none."""
    if not choices:
        return []
    return [choices[stream(case.seed, Purpose.FORM) % len(choices)]]


def told(found: Sequence[Changed], *, left: bool) -> tuple[Changed, ...]:
    """Return what changed forms of a case tell; nothing where a miss was left.

    Args:
        found: of each form what it showed.
        left: whether some form misses for a reason that another class reports.
    """
    fails = any(c.miss is not None for c in found)
    return tuple(found) if fails or not left else ()
