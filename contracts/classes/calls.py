"""Calls: they end, build, compute by themselves, and depend on their arguments only."""

from dataclasses import replace
from typing import Final

from kfuzz.contracts.classes.precision import failure_at, value_failure
from kfuzz.contracts.evidence import Builds, Evidence, Miss, Shorter, element
from kfuzz.contracts.language import ContractClass, Probe, Structure
from kfuzz.contracts.prose import promised
from kfuzz.contracts.reading import (
    accepted,
    agree,
    beyond_core,
    comparable,
    conforms,
    difference,
    is_decided,
    miss_of,
    spacings_off,
)
from kfuzz.core.verdict import ILLEGAL_ADDRESS, Failure, Kind

# K-LIV-01: the kernel terminates without fault.


def _judge_termination(evidence: Evidence) -> Failure | None:
    """Return a fault of the device, or what is raised where it must not be."""
    raised = evidence.base.raised
    if raised is not None and raised.lost and not is_refused(evidence):
        return Failure(
            contract="K-LIV-01",
            kind=Kind.DEVICE_FAULT,
            detail=raised.fault,
            message=f"faults on the device: {raised.message}",
            trace=raised.traceback,
        )
    left = evidence.base.unchecked
    # An invalid argument may be a query's: it counts if the result is wrong too.
    if (
        left is not None
        and not evidence.outside
        and (left.certain or miss_of(evidence))
    ):
        return Failure(
            contract="K-LIV-01",
            kind=Kind.UNCHECKED_LAUNCH,
            detail=left.name,
            message=f"returns although a launch failed: {left.name} ({left.text}), "
            "which the next launch of torch's would raise",
        )
    if raised is None or evidence.acceptance is None or beyond_core(evidence):
        return None
    return Failure(
        contract="K-LIV-01",
        kind=Kind.RAISES,
        detail=raised.type,
        message=f"raises {raised.type}: {raised.message}",
        trace=raised.traceback,
    )


def is_refused(evidence: Evidence) -> bool:
    """Whether what a case asks for may be refused by losing the device.

    A device-side assertion is how a GPU refuses what it is told to; that an address
    was illegal is luck.
    """
    raised = evidence.base.raised
    return evidence.outside and (raised is None or raised.fault != ILLEGAL_ADDRESS)


K_LIV_01 = ContractClass(
    **promised("K-LIV-01", Structure.INVARIANT),
    rank=10,
    level=1,
    core=True,
    kinds=(
        Kind.HANG,
        Kind.CRASH,
        Kind.DEVICE_FAULT,
        Kind.UNCHECKED_LAUNCH,
        Kind.RAISES,
    ),
    unseen={Kind.UNCHECKED_LAUNCH: "an error that a launch leaves"},
    judge=_judge_termination,
    decides=lambda evidence: evidence.base.raised is None,
    in_batch=lambda batch: batch.passed,
    of_values=False,
    beyond_bounds=True,
    of_gradients=True,
)


# K-BLD-01: what a kernel launches builds for the declared GPUs within their limits.


def _judge_builds(evidence: Evidence) -> Failure | None:
    """Return the first launch that does not build for a GPU."""
    for mismatch in evidence.of(Builds).mismatches:
        return Failure(
            contract="K-BLD-01",
            kind=Kind.DOES_NOT_BUILD,
            detail=mismatch.target,
            message=f"does not build for {mismatch.target}: {mismatch.kernel} "
            f"({mismatch.file}:{mismatch.line}): {mismatch.why}; launched with "
            f"{mismatch.given}",
        )
    return None


K_BLD_01 = ContractClass(
    **promised("K-BLD-01", Structure.EXACT),
    rank=105,
    level=3,
    sampled=(Probe.BUILD,),
    kinds=(Kind.DOES_NOT_BUILD,),
    later_kinds=(Kind.DOES_NOT_BUILD,),
    unseen={Kind.DOES_NOT_BUILD: "what its kernels are compiled to for another GPU"},
    judge=_judge_builds,
    decides=lambda evidence: evidence.of(Builds).built > 0,
    of_values=False,
    by_occasion=True,
    of_some_kernels=True,
    on_request=True,
    of_candidates=False,
)


# K-OWN-01: the result comes from the kernel's own launches.


def _judge_operators(evidence: Evidence) -> Failure | None:
    """Return the first operator of torch's that computed during the call."""
    if not evidence.base.returned or not evidence.base.foreign:
        return None
    # A conversion around another operator depends on the dtype: not the one to name.
    first, *others = sorted(evidence.base.foreign, key=_converts)
    also = f", and {', '.join(others)}" if others else ""
    return Failure(
        contract="K-OWN-01",
        kind=Kind.FOREIGN_OPERATOR,
        detail=first,
        message=f"computes with torch's own {first}{also}, not by launches of its own",
    )


def _converts(name: str) -> bool:
    return name in ("aten::_to_copy", "aten::copy_")


K_OWN_01 = ContractClass(
    **promised("K-OWN-01", Structure.EXACT),
    rank=100,
    level=2,
    kinds=(Kind.FOREIGN_OPERATOR,),
    judge=_judge_operators,
    decides=lambda evidence: evidence.base.returned,
    applies=lambda operator, claims: claims.own_kernels_only,
    of_values=False,
)


# K-REF-01: the result depends on the arguments only.

SPACINGS: Final = 8.0
"""Distances between neighbours of a format, beyond which a miss is no rounding: that of
the result, of what it is held against, and of sums of few terms before it."""

# What differs from the first data in a later call.
_PARTS: Final = {
    Probe.MIDDLE: "only the middle of each argument",
    Probe.ELEMENT: "only one element of each argument",
    Probe.LAST_ARGUMENT: "only the last argument",
}


def _judge_arguments_alone(evidence: Evidence) -> Failure | None:
    """Return what shows that a result depends on more than the arguments."""
    return (
        _addressed(evidence)
        or _remembered(evidence)
        or _recognised(evidence)
        or _changed(evidence)
        or _left_over(evidence)
        or _seeded(evidence)
        or _chosen(evidence)
        or _replayed(evidence)
    )


def _addressed(evidence: Evidence) -> Failure | None:
    """A miss that the very same data does not have in other memory."""
    miss = miss_of(evidence)
    if miss is None or not agree(evidence, Probe.BASE, Probe.REPEAT):
        return None
    if not conforms(evidence, Probe.ELSEWHERE):
        return None
    return _stale(miss, "the same data at other addresses gives what it should")


def _remembered(evidence: Evidence) -> Failure | None:
    """A second call, with other data, that answers from the first."""
    miss = miss_of(evidence, Probe.SECOND)
    if miss is None or miss_of(evidence) is not None:
        return None
    if conforms(evidence, Probe.SECOND_ALONE):
        why = "the call before it had other data at the same addresses, and the "
        return _stale(miss, why + "same data at other addresses gives what it should")
    # A kernel that is wrong about the second data may by chance repeat the first
    # result; one that is wrong about two others in the same bits remembers it.
    same = agree(evidence, Probe.BASE, Probe.SECOND) and agree(
        evidence, Probe.BASE, Probe.THIRD
    )
    if same and miss_of(evidence, Probe.THIRD) is not None:
        return _stale(miss, "it is the result of the first call with these shapes")
    return None


def _recognised(evidence: Evidence) -> Failure | None:
    """The first result again, though a part of the data has changed.

    A kernel that leaves that part out of account repeats it too: it is wrong about the
    changed data halved as well, which no call has had. One that is wrong by little
    repeats it where both round alike: the miss is more than that.
    """
    if miss_of(evidence) is not None or not conforms(evidence, Probe.CHANGED_HALVED):
        return None
    for probe, text in _PARTS.items():
        miss = miss_of(evidence, probe)
        if miss is None or not evidence.base.outputs[miss.output].is_floating_point():
            continue  # a wrong index may be the former one by chance
        if (
            agree(evidence, Probe.BASE, probe)
            and spacings_off(evidence, miss) >= SPACINGS
        ):
            why = f"it is the result of an earlier call, from which {text} differs"
            return _stale(miss, why)
    return None


def _changed(evidence: Evidence) -> Failure | None:
    """A call that was right at first and is wrong when it comes again."""
    miss = miss_of(evidence, Probe.AFTERWARDS)
    if miss is None or miss_of(evidence) is not None:
        return None
    if miss_of(evidence, Probe.AGAIN) is None:
        return None
    return _stale(miss, "the same call was right the first time")


def _left_over(evidence: Evidence) -> Failure | None:
    """A shorter call that has in it what a longer call before it left behind.

    Bits tell that the two orders differ, so the same order has to give the same bits
    again; and one result has to be wrong, whatever the kernel promises of its bits.
    """
    if not evidence.declaration.promises_bits or miss_of(evidence) is not None:
        return None
    first, other = Probe.SHORTER, Probe.SHORTER_AGAIN
    if not (
        comparable(evidence, other) and agree(evidence, first, Probe.SHORTER_REPEAT)
    ):
        return None
    miss = miss_of(evidence, first) or miss_of(evidence, other)
    if miss is None or agree(evidence, first, other):
        return None
    why = "the same call gives other bits after a call on the larger shape with "
    return _stale(miss, f"with {evidence.of(Shorter)}, {why}other data")


def suspected(evidence: Evidence) -> tuple[Probe, Failure] | None:
    """Return a later call that misses, and what it shows if it is right by itself.

    The process in which it misses cannot tell: a memo of the shapes that keeps a part
    only, as a packed weight, is as wrong at other addresses.
    """
    if miss_of(evidence) is not None:
        return None
    part = evidence.of(Shorter)
    shorter = f"with {part}, alone the same call gives what it should; after "
    for probe, again, why in (
        (
            Probe.SECOND,
            Probe.SECOND_ALONE,
            "alone the same call gives what it should; after a call on other data of "
            "the same shapes it does not",
        ),
        (
            Probe.SHORTER,
            Probe.SHORTER_AGAIN,
            shorter + "a call on the larger shape it does not",
        ),
    ):
        miss = miss_of(evidence, probe)
        if miss is not None and agree(evidence, probe, again):  # and not by chance
            return probe, _stale(miss, why)
    return None


def _replayed(evidence: Evidence) -> Failure | None:
    """A replayed call that answers from the data that it was captured on."""
    if miss_of(evidence) is not None or not conforms(evidence, Probe.SECOND_ALONE):
        return None
    why = "replayed from a CUDA graph; a call of its own gives what it should"
    for probe in (Probe.REPLAYED, Probe.REPLAYED_OWN):
        miss = miss_of(evidence, probe)
        if miss is not None:
            return _stale(miss, why)
    return None


def _stale(miss: Miss, why: str) -> Failure:
    text = f"{miss.describe()}; {why}"
    return failure_at("K-REF-01", Kind.STALE_RESULT, text, miss)


def _seeded(evidence: Evidence) -> Failure | None:
    """Bits that follow the seed: the same under each of two, in turn."""
    if not evidence.declaration.promises_bits:
        return None
    stable = agree(evidence, Probe.BASE, Probe.AFTERWARDS)
    if not (stable and agree(evidence, Probe.AGAIN, Probe.AGAIN_REPEAT)):
        return None
    found = difference(evidence, Probe.BASE, Probe.AGAIN)
    if found is None:
        return None
    where = element(found.output, found.index)
    text = f"{where} = {found.one:.9g} under one seed of torch's random generators and "
    text += f"{found.other:.9g} under another"
    miss = miss_of(evidence, Probe.AGAIN)
    if miss is None or miss.output != found.output:
        return failure_at("K-REF-01", Kind.SEED_DEPENDENT, text, found)
    # More than other bits: under one of the seeds the result is wrong.
    wrong = value_failure("K-REF-01", miss, kind=Kind.SEED_DEPENDENT)
    message = f"{text}; {wrong.message}"
    return replace(wrong, message=message, elements=found.elements)


# What else differs in a call with the same arguments and under the same seed.
_PLACES: Final = {
    Probe.AFTERWARDS: "when the same call comes again",
    Probe.ELSEWHERE: "with the same data, and what is allocated, at other addresses",
}


def _chosen(evidence: Evidence) -> Failure | None:
    """Another answer of several that are right, to the same question."""
    operator, claims = evidence.operator, evidence.declaration
    # Of gradients that are right some differ by rounding.
    several = operator.relation and not operator.forward and claims.promises_bits
    for probe, when in _PLACES.items() if several else ():
        both = conforms(evidence, Probe.BASE) and conforms(evidence, probe)
        found = difference(evidence, Probe.BASE, probe) if both else None
        if found is not None:
            where = element(found.output, found.index)
            text = f"{where} = {found.one:.9g}, and {found.other:.9g} {when}"
            return failure_at("K-REF-01", Kind.STALE_RESULT, text, found)
    return None


K_REF_01 = ContractClass(
    **promised("K-REF-01", Structure.COMPOSITE),
    rank=80,
    level=3,
    core=True,
    on_miss=(Probe.REPEAT, Probe.ELSEWHERE),
    sampled=(
        Probe.SECOND,
        Probe.AGAIN,
        Probe.SECOND_ALONE,
        Probe.THIRD,
        Probe.MIDDLE,
        Probe.ELEMENT,
        Probe.LAST_ARGUMENT,
        Probe.CHANGED_HALVED,
        Probe.AFTERWARDS,
        Probe.AGAIN_REPEAT,
        Probe.SHORTER,
        Probe.SHORTER_AGAIN,
        Probe.SHORTER_REPEAT,
        Probe.REPLAYED,
        Probe.REPLAYED_OWN,
    ),
    kinds=(Kind.STALE_RESULT, Kind.SEED_DEPENDENT),
    later_kinds=(Kind.STALE_RESULT, Kind.SEED_DEPENDENT),
    unseen={Kind.STALE_RESULT: "whether a result belongs to an earlier call"},
    judge=_judge_arguments_alone,
    decides=lambda evidence: (
        comparable(evidence, Probe.SECOND, Probe.AGAIN)
        and accepted(evidence, Probe.SECOND) is not None
        and is_decided(evidence)
    ),
    second_call=True,
    by_repeats=True,
)
