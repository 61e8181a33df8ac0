"""A fault beside a fence becomes K-MEM-01: which argument, which way, how far.

A child that dies of SIGSEGV tells nothing but that. What it touched is found out by
running the case again, one fresh child per question: without fences (if it dies
then too, no fence is to blame); with one argument at a fence at a time; with the
fence readable, which a read survives; with more and more slack between argument and
fence.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from kfuzz.core.dtypes import DTYPES
from kfuzz.core.finding import Finding
from kfuzz.core.recipe import Case, Edge
from kfuzz.core.verdict import Access, CaseReport, Failure, Kind, Verdict

CONTRACT: Final = "K-MEM-01"

FARTHEST_BYTES: Final = 1 << 18
"""Slack up to which a distance is measured; beyond it is only called far."""

OUTSIDE: Final = (Kind.READ_OUTSIDE, Kind.WRITE_OUTSIDE)

Dies = Callable[[Case], bool]


def locate(case: Case, dies: Dies) -> tuple[Case, Failure] | None:
    """Return which argument's fence a case touches, and the violation.

    Args:
        case: pinned, dies of a fault where it runs with its edge.
        dies: whether a case ends a fresh child by a fault.

    Returns:
        The case with that argument alone at a fence, and the violation without a
        distance; None if no fence is to blame.
    """
    if case.edge is None or dies(replace(case, edge=None)):
        return None
    for edge in _candidates(case, case.edge):
        found = replace(case, edge=edge)
        if not dies(found):
            continue
        writes = dies(replace(found, edge=replace(edge, readable=True)))
        return found, _located(found, writes=writes)
    return None


def measure(case: Case, failure: Failure, dies: Dies, alignment: int) -> Failure:
    """Return the violation with its distance.

    An argument keeps its alignment, so that it moves away from the fence in steps of
    that many bytes: the distance is known to within one step.

    Args:
        case: from `locate`.
        failure: from `locate`.
        dies: whether a case ends a fresh child by a fault.
        alignment: bytes, to which arguments are aligned.
    """
    assert case.edge is not None
    spec = case.memory(case.edge.argument)
    size = DTYPES[spec.dtype].itemsize
    step = max(alignment, size)

    def dies_at(steps: int) -> bool:
        assert case.edge is not None
        return dies(replace(case, edge=replace(case.edge, slack=steps * step)))

    # It dies without slack: it reaches beyond `low` steps, but not beyond `high`.
    low, high = 0, 1
    while dies_at(high):
        low, high = high, 2 * high
        if high * step > FARTHEST_BYTES:
            far = f"more than {low * step // size} elements"
            return _failure(case, failure, far, low * step // size + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if dies_at(middle) else (low, middle)
    gap = _gap(case, alignment)
    least, most = (gap + low * step) // size + 1, (gap + high * step) // size
    far = f"{least} element{'s' if least != 1 else ''}"
    if least == most:
        return _failure(case, failure, far, least)
    far = f"{least} to {most} elements"
    return _failure(
        case, failure, far, least, f"; {case.edge.argument} is aligned to {step} bytes"
    )


def is_flush(case: Case, alignment: int) -> bool:
    """Whether nothing lies between the one argument at a fence and the fence.

    Where something does, no fault says little: an access may have ended there.
    """
    return _gap(case, alignment) == 0


def is_beside_page(finding: Finding) -> bool:
    """Whether a finding is a fault that was traced to one argument's fence."""
    edge = finding.case.edge
    named = edge is not None and edge.argument == finding.signature.output != ""
    return named and finding.signature.kind in OUTSIDE


def charged(report: CaseReport, failure: Failure) -> CaseReport:
    """Return the report of a fault as the violation that it is found to be."""
    assert report.failure is not None
    traced = replace(failure, trace=report.failure.trace)
    return CaseReport({failure.contract: Verdict.VIOLATES}, failure=traced)


def _gap(case: Case, alignment: int) -> int:
    """Return the bytes between the argument's elements and its fence, without slack."""
    assert case.edge is not None
    spec = case.memory(case.edge.argument)
    size = DTYPES[spec.dtype].itemsize
    if case.edge.side == "start":
        return spec.offset * size
    return -(spec.offset + spec.span) * size % max(alignment, size)


def _candidates(case: Case, edge: Edge) -> Iterator[Edge]:
    """Yield edges of one argument each, those on the case's own side first."""
    if edge.argument:
        yield edge
        return
    other = "start" if edge.side == "end" else "end"
    for side in (edge.side, other):
        for name in (*case.tensors, *case.destinations):
            if case.memory(name).numel:
                yield Edge(side, name)


def _failure(
    case: Case, found: Failure, far: str, distance: int, why: str = ""
) -> Failure:
    """Return a violation with its distance, in words and in elements.

    `why` says what keeps it from being exact.
    """
    after = _is_after(case)
    name, [access] = found.output, found.accesses
    last = case.memory(name).span - 1
    side = "past the end" if after else "before the start"
    verb = "writes" if access.access == "store" else "reads"
    return replace(
        found,
        message=f"{verb} outside {name}: {far} {side} (guard page{why})",
        accesses=(
            replace(
                access,
                distance=distance,
                offset=last + distance if after else -distance,
            ),
        ),
    )


def _located(case: Case, *, writes: bool) -> Failure:
    """Return the violation of a case whose argument's fence is touched."""
    assert case.edge is not None
    name, after = case.edge.argument, _is_after(case)
    verb = "writes" if writes else "reads"
    side = "past the end" if after else "before the start"
    access = Access(
        access="store" if writes else "load",
        argument=name,
        memory=name,
        where="after" if after else "before",
        distance=1,
        offset=case.memory(name).span if after else -1,
    )
    return Failure(
        contract=CONTRACT,
        kind=Kind.WRITE_OUTSIDE if writes else Kind.READ_OUTSIDE,
        output=name,
        message=f"{verb} outside {name}: {side} (guard page)",
        accesses=(access,),
    )


def _is_after(case: Case) -> bool:
    return case.edge is not None and case.edge.side == "end"
