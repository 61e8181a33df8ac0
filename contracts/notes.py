"""What is suspicious about a case that violates nothing."""

from collections.abc import Iterator

from kfuzz.contracts.language import Probe
from kfuzz.contracts.repeats import ORDERS, accesses, agree
from kfuzz.contracts.view import View
from kfuzz.core.verdict import Access


def notes(view: View) -> tuple[str, ...]:
    """Return one line each; equal ones for equal faults, so that they can be counted.

    Only what was put to the test is told: other poisons, another order of programs.
    """
    told = () if view.opcheck is None else view.opcheck.notes
    found = (*_unwritten(view), *_races(view), *_collectives(view), *told)
    return tuple(dict.fromkeys(found))


def _unwritten(view: View) -> Iterator[str]:
    tried = (
        agree(view, Probe.BASE, Probe.REPEAT)
        and agree(view, Probe.OTHER_POISON, Probe.OTHER_REPEAT)
        and agree(view, Probe.BASE, Probe.OTHER_POISON)
    )
    if tried:
        for access in accesses(view, "unwritten"):
            place = f" ({access.line})" if access.line else ""
            yield (
                f"loads elements that nothing wrote{place}; no result depends on them"
            )


def _races(view: View) -> Iterator[str]:
    if all(agree(view, Probe.BASE, p) for p in (Probe.REPEAT, *ORDERS)):
        for access in accesses(view, "race"):
            place = f" ({access.line})" if access.line else ""
            yield (
                f"two programs store different values to one element of "
                f"{_memory(access)}{place}; no result depends on it"
            )


def _collectives(view: View) -> Iterator[str]:
    if view.collected is not None and view.collected.reason:
        yield f"not judged beside a collective: {view.collected.reason}"


def _memory(access: Access) -> str:
    """Return the memory without its shape, which changes from case to case."""
    return access.argument or "memory of its own"
