"""What is reported where a child gave no answer: hangs, crashes, lost memory, faults.

A fault beside a fence becomes K-MEM-01: which memory, which way, how far.

A child that dies of SIGSEGV, or whose device reports an illegal address, tells nothing
but that. What it touched is found out by running the case again, one fresh child per
question: without fences (if it faults then too, no fence causes it); with one
argument, or one of the kernel's own allocations, at a fence at a time; with the fence
readable, which a read survives; with more and more slack before the fence.
"""

import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from kfuzz.core.dtypes import DTYPES
from kfuzz.core.finding import Finding
from kfuzz.core.recipe import Case, Edge
from kfuzz.core.verdict import (
    ILLEGAL_ADDRESS,
    Access,
    Allocation,
    CaseReport,
    Failure,
    Kind,
    Verdict,
)
from kfuzz.execution.memory.own_fences import EDGE_ALIGNMENT
from kfuzz.execution.processes import ChildDied
from kfuzz.execution.processes.faults import FAULT_SIGNALS

_K_LIV: Final = "K-LIV-01"
_DESCRIPTORS: Final = "file descriptors"
# faulthandler shows so many frames of a thread, then this line.
_SHOWN_FRAMES: Final = 100
_CUT: Final = "  ..."
# A cycle of more functions than these is no cycle that anybody wrote.
_CYCLE: Final = 16
# Files of compilers: a call that is in one of them has not come to the kernel yet.
_COMPILING: Final = re.compile(
    r"/triton/(compiler|backends)/[^\n]*compiler\.py|/torch/utils/cpp_extension\.py"
)


def hang_report(limit: float, stack: str = "") -> CaseReport:
    """Return the report of a call that did not return within `limit` seconds.

    One that still compiles does not hang: many kernels are compiled for blocks as large
    as the shape, and compilers take minutes for very large ones.
    """
    if _COMPILING.search(stack):
        return CaseReport({}, unsupported=f"compiling for it takes over {limit:.0f} s")
    recurses = "recurses without end: " if _recurses(stack) else ""
    failure = Failure(
        contract=_K_LIV,
        kind=Kind.HANG,
        message=f"{recurses}does not return within {limit:.0f} s",
        trace=stack,
    )
    return CaseReport({_K_LIV: Verdict.VIOLATES}, failure=failure)


def _recurses(stack: str) -> bool:
    """Whether a thread has more frames than are shown, all of a few functions."""
    lines = stack.splitlines()
    if _CUT not in lines:
        return False
    end = lines.index(_CUT)
    frames = [line for line in lines[:end] if line.startswith("  File ")]
    return len(set(frames[-_SHOWN_FRAMES:])) <= _CYCLE


def death_report(died: ChildDied) -> CaseReport:
    """Return the report of a call that ended its process."""
    what = died.signal_name or f"exit code {died.exit_code}"
    says = f"ends its process: {what}"
    if died.disconnected:
        what, says = _DESCRIPTORS, f"closes {_DESCRIPTORS} that are not its own"
    elif died.signal_name == signal.SIGKILL.name:
        # Nothing in a kernel sends SIGKILL: the machine ran out of memory.
        return CaseReport({}, error="the child was killed: out of memory?")
    failure = Failure(
        contract=_K_LIV,
        kind=Kind.CRASH,
        detail=what,
        message=says,
        trace=died.output_tail[-4000:],
    )
    return CaseReport({_K_LIV: Verdict.VIOLATES}, failure=failure)


def is_hang(report: CaseReport) -> bool:
    """Whether the call did not return."""
    return report.failure is not None and report.failure.kind is Kind.HANG


def is_fault(report: CaseReport) -> bool:
    """Whether the call touched memory that is not there.

    It ends its process on the CPU and the use of the device on a GPU. What else ends
    that (an assertion, a misaligned address, a time limit) is no such fault.
    """
    failure = report.failure
    if failure is None:
        return False
    if failure.kind is Kind.DEVICE_FAULT:
        return failure.detail == ILLEGAL_ADDRESS
    return failure.kind is Kind.CRASH and failure.detail in FAULT_SIGNALS


def lost_memory(report: CaseReport) -> bool:
    """Whether memory ran out, of which a child may keep what it got."""
    return "out of memory" in (report.error or report.unsupported or "")


CONTRACT: Final = "K-MEM-01"

FARTHEST_BYTES: Final = 1 << 18
"""Slack up to which a distance is measured; beyond it is only called far."""

MOST_ALLOCATIONS: Final = 16
"""Of the kernel's own allocations so many are asked about, each by a child."""

OUTSIDE: Final = (Kind.READ_OUTSIDE, Kind.WRITE_OUTSIDE)

# What is known of an access beside a fence, in words and as `Access` says it.
_VERBS: Final = {"store": "write to", "load": "read of", "access": "access to"}


@dataclass(frozen=True)
class Answer:
    """What a fresh child showed of a case.

    Attributes:
        struck: whether it faulted on memory that is not there.
        wrote: whether it is known to write outside what the case has at a fence that
            can be read: on the CPU such a write faults, on a device it is seen.
        beside: the kernel's own allocation that the case names, if it was made.
    """

    struck: bool
    wrote: bool = False
    beside: Allocation | None = None


Ask = Callable[[Case], Answer]


def answer_of(case: Case, report: CaseReport) -> Answer:
    """Return what the report of a case shows."""
    failure, edge = report.failure, case.edge
    struck = is_fault(report)
    wrote = (
        failure is not None
        and edge is not None
        and edge.readable
        and (
            (struck and failure.kind is Kind.CRASH)
            or (failure.kind is Kind.WRITE_OUTSIDE and failure.output == edge.argument)
        )
    )
    return Answer(struck, wrote, report.beside)


def locate(
    case: Case, ask: Ask, *, allocations: bool = False
) -> tuple[Case, Failure] | None:
    """Return what lies at the fence that a case touches, and the violation.

    Args:
        case: pinned, faults where it runs with its edge.
        ask: runs a case in a fresh child.
        allocations: whether the kernel's own allocations lie at fences too.

    Returns:
        The case with that memory alone at a fence, and the violation without a
        distance; None if no fence causes it.
    """
    if case.edge is None or ask(replace(case, edge=None)).struck:
        return None
    for edge in _candidates(case, case.edge):
        found = replace(case, edge=edge)
        answer = ask(found)
        if answer.struck:
            return found, _told(found, answer, ask)
        if edge.allocation is not None:
            return None
    if case.edge.argument or not allocations:
        return None
    for number in range(MOST_ALLOCATIONS):
        found = replace(case, edge=Edge(case.edge.side, allocation=number))
        answer = ask(found)
        if answer.struck:
            return found, _told(found, answer, ask)
        if answer.beside is None:  # there are no more
            break
    return None


def _told(case: Case, answer: Answer, ask: Ask) -> Failure:
    """Return the violation of a case that touches its one fence."""
    assert case.edge is not None
    told = ask(replace(case, edge=replace(case.edge, readable=True)))
    if told.wrote:
        return _located(case, "store", answer.beside)
    # Beyond even the fence of a device, which can be read and written then.
    return _located(case, "access" if told.struck else "load", answer.beside)


def measure(case: Case, failure: Failure, ask: Ask, alignment: int) -> Failure:
    """Return the violation with its distance.

    Memory keeps its alignment, so that it moves away from the fence in steps of
    that many bytes: the distance is known to within one step.

    Args:
        case: from `locate`.
        failure: from `locate`.
        ask: runs a case in a fresh child.
        alignment: bytes, to which arguments are aligned.
    """
    assert case.edge is not None
    beside = None
    if case.edge.allocation is not None:
        beside = ask(case).beside
        if beside is None:
            return failure
    size, step = _steps(case, alignment, beside)

    def strikes_at(steps: int) -> bool:
        assert case.edge is not None
        return ask(replace(case, edge=replace(case.edge, slack=steps * step))).struck

    # It faults without slack: it reaches beyond `low` steps, but not beyond `high`.
    low, high = 0, 1
    while strikes_at(high):
        low, high = high, 2 * high
        if high * step > FARTHEST_BYTES:
            far = f"more than {low * step // size} elements"
            return _failure(case, failure, far, low * step // size + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if strikes_at(middle) else (low, middle)
    gap = _gap(case, alignment, beside)
    least, most = (gap + low * step) // size + 1, (gap + high * step) // size
    far = f"{least} element{'s' if least != 1 else ''}"
    if least == most:
        return _failure(case, failure, far, least)
    far = f"{least} to {most} elements"
    named = case.edge.argument or "it"
    return _failure(case, failure, far, least, f"; {named} is aligned to {step} bytes")


def _steps(case: Case, alignment: int, beside: Allocation | None) -> tuple[int, int]:
    """Return the bytes per element, and those by which slack moves the memory."""
    assert case.edge is not None
    if beside is not None:
        return beside.itemsize, EDGE_ALIGNMENT
    size = DTYPES[case.memory(case.edge.argument).dtype].itemsize
    return size, max(alignment, size)


def is_flush(case: Case, alignment: int) -> bool:
    """Whether nothing lies between the one argument at a fence and the fence.

    Where something does, no fault says little: an access may have ended there.
    """
    assert case.edge is not None
    return bool(case.edge.argument) and _gap(case, alignment) == 0


def is_beside_page(finding: Finding) -> bool:
    """Whether a finding is a fault that was traced to one fence."""
    edge = finding.case.edge
    if edge is None or finding.signature.kind not in OUTSIDE:
        return False
    if edge.allocation is not None:
        return not finding.signature.output
    return edge.argument == finding.signature.output != ""


def charged(report: CaseReport, failure: Failure) -> CaseReport:
    """Return the report of a fault as the violation that it is found to be."""
    assert report.failure is not None
    traced = replace(failure, trace=report.failure.trace)
    return CaseReport({failure.contract: Verdict.VIOLATES}, failure=traced)


def _gap(case: Case, alignment: int, beside: Allocation | None = None) -> int:
    """Return the bytes between the memory and its fence, without slack."""
    assert case.edge is not None
    size, step = _steps(case, alignment, beside)
    if beside is not None:
        return 0 if case.edge.side == "start" else -beside.elements * size % step
    spec = case.memory(case.edge.argument)
    if case.edge.side == "start":
        return spec.offset * size
    return -(spec.offset + spec.span) * size % step


def _candidates(case: Case, edge: Edge) -> Iterator[Edge]:
    """Yield edges of one argument each, those on the case's own side first."""
    if edge.argument or edge.allocation is not None:
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
    [access] = found.accesses
    first = access.offset if after else 0  # as `_located` gave it
    return replace(
        found,
        message=_message(case, access, f"{far} ", why),
        accesses=(
            replace(
                access,
                distance=distance,
                offset=first + distance - 1 if after else -distance,
            ),
        ),
    )


def _located(case: Case, touches: str, beside: Allocation | None) -> Failure:
    """Return the violation of a case whose one fence is touched.

    Args:
        case: has that memory alone at a fence.
        touches: "load", "store", or "access" where that is unknown.
        beside: the kernel's own allocation, if it is one.
    """
    assert case.edge is not None
    name, after = case.edge.argument, _is_after(case)
    if beside is not None:
        memory, span = beside.memory, beside.elements
    elif name:
        memory, span = name, case.memory(name).span
    else:  # its device was lost before it could be asked about
        memory, span = "memory of its own", 0
    access = Access(
        access=touches,
        argument=name,
        memory=memory,
        where="after" if after else "before",
        distance=1,
        offset=span if after else -1,
    )
    return Failure(
        contract=CONTRACT,
        kind=Kind.WRITE_OUTSIDE if touches == "store" else Kind.READ_OUTSIDE,
        output=name,
        message=_message(case, access, "", ""),
        accesses=(access,),
    )


def _message(case: Case, access: Access, far: str, why: str) -> str:
    side = "past the end" if _is_after(case) else "before the start"
    verb = _VERBS[access.access]
    return f"out-of-bounds {verb} {access.memory}: {far}{side} (guard page{why})"


def _is_after(case: Case) -> bool:
    return case.edge is not None and case.edge.side == "end"
