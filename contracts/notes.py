"""What is suspicious about a case that violates nothing."""

from collections.abc import Iterator

from kfuzz.contracts.evidence import Collected, Evidence, OpCheck
from kfuzz.contracts.language import Probe
from kfuzz.contracts.reading import ORDERS, accesses, agree
from kfuzz.core.verdict import Access


def notes(evidence: Evidence) -> tuple[str, ...]:
    """Return one line each; equal ones for equal faults, so that they can be counted.

    Only what was put to the test is told: other poisons, another order of programs.
    """
    told = evidence.of(OpCheck).notes
    found = (*_unwritten(evidence), *_races(evidence), *_collectives(evidence), *told)
    return tuple(dict.fromkeys(found))


def _unwritten(evidence: Evidence) -> Iterator[str]:
    tried = (
        agree(evidence, Probe.BASE, Probe.REPEAT)
        and agree(evidence, Probe.OTHER_POISON, Probe.OTHER_REPEAT)
        and agree(evidence, Probe.BASE, Probe.OTHER_POISON)
    )
    if tried:
        for access in accesses(evidence, "unwritten"):
            place = f" ({access.line})" if access.line else ""
            yield (
                f"loads elements that nothing wrote{place}; no result depends on them"
            )


def _races(evidence: Evidence) -> Iterator[str]:
    if all(agree(evidence, Probe.BASE, p) for p in (Probe.REPEAT, *ORDERS)):
        for access in accesses(evidence, "race"):
            place = f" ({access.line})" if access.line else ""
            yield (
                f"two programs store different values to one element of "
                f"{_memory(access)}{place}; no result depends on it"
            )


def _collectives(evidence: Evidence) -> Iterator[str]:
    if reason := evidence.of(Collected).reason:
        yield f"not judged beside a collective: {reason}"


def _memory(access: Access) -> str:
    """Return the memory without its shape, which changes from case to case."""
    return access.argument or "memory of its own"
