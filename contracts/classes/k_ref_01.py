"""K-REF-01: the result depends on the arguments only."""

from dataclasses import replace
from typing import Final

from kfuzz.contracts.classes.values import value_failure
from kfuzz.contracts.evidence import Evidence, Miss, Shorter
from kfuzz.contracts.language import (
    ContractClass,
    Probe,
    Structure,
)
from kfuzz.contracts.prose import promised
from kfuzz.contracts.reading import (
    accepted,
    agree,
    comparable,
    conforms,
    differing,
    first_of,
    is_decided,
    miss_of,
    spacings_off,
)
from kfuzz.core.verdict import Failure, Kind

SPACINGS: Final = 8.0
"""Distances between neighbours of a format, beyond which a miss is no rounding: that of
the result, of what it is held against, and of sums of few terms before it."""

# What differs from the first data in a later call.
_PARTS: Final = {
    Probe.MIDDLE: "only the middle of each argument",
    Probe.ELEMENT: "only one element of each argument",
    Probe.LAST_ARGUMENT: "only the last argument",
}


def judge(evidence: Evidence) -> Failure | None:
    """Return what shows that a result depends on more than the arguments."""
    return (
        _addressed(evidence)
        or _remembered(evidence)
        or _recognised(evidence)
        or _changed(evidence)
        or _left_over(evidence)
        or _seeded(evidence)
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
    # The values stand in the message only: they may be those of other data.
    return Failure(
        contract="K-REF-01",
        kind=Kind.STALE_RESULT,
        message=f"{miss.describe()}; {why}",
        output=miss.output,
        index=miss.index,
        elements=miss.elements,
    )


def _seeded(evidence: Evidence) -> Failure | None:
    """Bits that follow the seed: the same under each of two, in turn."""
    if not evidence.declaration.promises_bits:
        return None
    stable = agree(evidence, Probe.BASE, Probe.AFTERWARDS)
    if not (stable and agree(evidence, Probe.AGAIN, Probe.AGAIN_REPEAT)):
        return None
    places = differing(evidence, Probe.BASE, Probe.AGAIN)
    found = first_of(places)
    if found is None:
        return None
    output, index = found
    one = float(evidence.base.outputs[output][index])
    other = float(evidence.runs[Probe.AGAIN].outputs[output][index])
    where = f"{output}[{', '.join(map(str, index))}]"
    text = f"{where} = {one:.9g} under one seed of torch's random generators and "
    text += f"{other:.9g} under another"
    failure = Failure(
        contract="K-REF-01",
        kind=Kind.SEED_DEPENDENT,
        message=text,
        output=output,
        index=index,
        elements=int(places[output].sum()),
    )
    miss = miss_of(evidence, Probe.AGAIN)
    if miss is None or miss.output != output:
        return failure
    # More than other bits: under one of the seeds the result is wrong.
    wrong = value_failure("K-REF-01", miss, kind=failure.kind)
    told = f"{text}; {wrong.message}"
    return replace(wrong, message=told, elements=failure.elements)


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
    judge=judge,
    decides=lambda evidence: (
        comparable(evidence, Probe.SECOND, Probe.AGAIN)
        and accepted(evidence, Probe.SECOND) is not None
        and is_decided(evidence)
    ),
    second_call=True,
    by_repeats=True,
)
