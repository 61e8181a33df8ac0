"""What is suspicious about a case that violates nothing."""

from collections.abc import Iterator

from kfuzz.contracts.evidence import Builds, Collected, Evidence, OpCheck
from kfuzz.contracts.language import Probe
from kfuzz.contracts.reading import ORDERS, accesses, agree
from kfuzz.core.verdict import Access
from kfuzz.numerics.acceptance import tightened
from kfuzz.numerics.comparator.compare import compare


def notes(evidence: Evidence) -> tuple[str, ...]:
    """Return one line each; equal ones for equal faults, so that they can be counted.

    Only what was put to the test is told: other poisons, another order of programs.
    """
    found = (
        *_unwritten(evidence),
        *_races(evidence),
        *_collectives(evidence),
        *_builds(evidence),
        *evidence.of(OpCheck).notes,
        *_beyond_bounds(evidence),
        *(f"leaves {each} changed; it was put back" for each in _left(evidence)),
    )
    return tuple(dict.fromkeys(found))


def _left(evidence: Evidence) -> Iterator[str]:
    """Yield what calls left changed of torch's own state."""
    for run in evidence.runs.values():
        yield from run.left


def _unwritten(evidence: Evidence) -> Iterator[str]:
    tried = (
        agree(evidence, Probe.BASE, Probe.REPEAT)
        and agree(evidence, Probe.OTHER_POISON, Probe.OTHER_REPEAT)
        and agree(evidence, Probe.BASE, Probe.OTHER_POISON)
    )
    if tried:
        for access in accesses(evidence, "unwritten"):
            place = f" ({access.line})" if access.line else ""
            yield (f"loads uninitialized elements{place}; no result depends on them")


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


def _builds(evidence: Evidence) -> Iterator[str]:
    if reason := evidence.of(Builds).reason:
        yield f"not known to build for the named GPUs: {reason}"


def _beyond_bounds(evidence: Evidence) -> Iterator[str]:
    """What the running-error shadow finds suspicious and does not report.

    An operator without an error rule leaves results undecided; a result beyond the
    derived bound, and within the safety factor that only a violation exceeds, may be
    another form of the same function, or a fault.
    """
    for name, accepted in (evidence.acceptance or {}).items():
        for operator in accepted.unknown:
            yield f"{name} is undecided: no error rule for {operator}"
        if accepted.safety == 1 or not evidence.base.comparable:
            continue
        y = evidence.base.outputs[name].unsqueeze(0)
        if bool(compare(y, tightened(accepted)).missed.any()):
            yield (
                f"{name} lies beyond the running-error bound, within "
                f"{accepted.safety:g} times of it"
            )


def _memory(access: Access) -> str:
    """Return the memory without its shape, which changes from case to case."""
    return access.argument or "memory of its own"
