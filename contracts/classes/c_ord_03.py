"""C-ORD-03: calls that overlap give what they give one after the other."""

from kfuzz.contracts.evidence import Collected, Evidence, Torn
from kfuzz.contracts.language import (
    SECOND_CALL_SHARE,
    ContractClass,
    Probe,
    Structure,
    Tolerance,
)
from kfuzz.contracts.reading import (
    accepted,
    agree,
    comparable,
    conforms,
    differing,
    first_of,
    is_decided,
    miss_of,
)
from kfuzz.core.verdict import Failure, Kind

ID = "C-ORD-03"
TOGETHER = "where several calls overlap"
COLLECTIVE = "collective"
APART = "one after the other they are correct"


def judge(evidence: Evidence) -> Failure | None:
    """Return what a call left that overlapped others and is right by itself."""
    torn = evidence.of(Collected).torn
    if torn is not None:
        return _of_collective(torn)
    run = evidence.runs.get(Probe.OVERLAPPED)
    if run is None or not conforms(evidence, Probe.ALONE):
        return None
    if run.raised is not None:
        raised = run.raised
        text = f"{raised.type}: {raised.message} {TOGETHER}; {APART}"
        return Failure(ID, Kind.OVERLAP_DEPENDENT, text, trace=raised.traceback)
    if run.metadata is not None:
        wrong = run.metadata
        text = f"{wrong.message} {TOGETHER}; {APART}"
        return Failure(ID, Kind.OVERLAP_DEPENDENT, text, output=wrong.output)
    miss = miss_of(evidence, Probe.OVERLAPPED)
    if miss is not None:
        # The values stand in the message only: they may be those of other data.
        return Failure(
            ID,
            Kind.OVERLAP_DEPENDENT,
            f"{miss.describe()} {TOGETHER}; {APART}",
            output=miss.output,
            index=miss.index,
            elements=miss.elements,
        )
    if evidence.declaration.determinism != "bitwise":
        return None
    if agree(evidence, Probe.ALONE, Probe.OVERLAPPED):
        return None
    places = differing(evidence, Probe.ALONE, Probe.OVERLAPPED)
    found = first_of(places)
    assert found is not None
    output, index = found
    one = float(evidence.runs[Probe.ALONE].outputs[output][index])
    other = float(run.outputs[output][index])
    return Failure(
        ID,
        Kind.OVERLAP_DEPENDENT,
        f"{output}[{', '.join(map(str, index))}] = {other:.9g} {TOGETHER}, {one:.9g} "
        "by itself; bitwise determinism is declared",
        output=output,
        index=index,
        elements=int(places[output].sum()),
    )


def _of_collective(torn: Torn) -> Failure:
    """Return the violation that an all-reduce saw."""
    where = f"{torn.output}[{', '.join(map(str, torn.index))}]"
    some = f" ({torn.elements} of {torn.of} elements)" if torn.elements > 1 else ""
    return Failure(
        ID,
        Kind.OVERLAP_DEPENDENT,
        f"the sum over two GPUs of {where} is {torn.got:.9g} where the next call "
        f"overlaps the all-reduce, {torn.wanted:.9g} after it{some}",
        output=torn.output,
        detail=COLLECTIVE,
        index=torn.index,
        elements=torn.elements,
    )


CLASS = ContractClass(
    id=ID,
    rank=70,
    level=3,
    title="overlapping calls give the same results as sequential calls",
    scope="kernels on the CPU and on a GPU; not in Triton's interpreter, which runs "
    "one call at a time",
    precondition="Cases that conform; also with other data of the same shapes.",
    postcondition="Each of several overlapping calls, on data and memory of its "
    "own, gives a result that is accepted for its data; with determinism bitwise, the "
    "same bits as alone.",
    tolerance=Tolerance(
        Structure.COMPOSITE,
        "K-VAL-01's acceptance of each call's own data; equal bits where declared",
        "what a call is given does not depend on which others run",
    ),
    sampled=(Probe.ALONE, Probe.OVERLAPPED),
    procedure=f"kfuzz's definition. On one in {SECOND_CALL_SHARE} cases that conform. "
    "On the CPU: four threads, two on the case's data and two on other data (flipped "
    "along every axis, floats negated), each in memory of its own, wait for one event "
    "and then call the kernel four times; twice over, and twelve times where a finding "
    "is confirmed. Python's threads take turns every microsecond, and at a quarter of "
    "the calls that the kernel makes; kernels that Triton's interpreter runs, one "
    "launch at a time, are left out. On a GPU: a stream of its own waits, writes the "
    "arguments over other data, runs the kernel and copies its results, with no event "
    "to any other stream; what the kernel does on another stream comes too early. "
    "Memory that it keeps between calls must then be its own per thread or stream, or "
    "be locked. Where two GPUs are visible, a kernel runs once in a run, on one case "
    "that conforms, beside a collective: in two processes, one stream calls it six "
    "times, on the data and on the negated in turn, while another sums its result of "
    "the call before over both GPUs by NCCL (multicast off). The sums must be those of "
    "copies that were taken before the next call; each is one rounded addition, so "
    "that bits are compared. Kernels that are given memory for their results are left "
    "out, and with one GPU collectives are not_applicable.",
    kinds=(Kind.OVERLAP_DEPENDENT,),
    later_kinds=(Kind.OVERLAP_DEPENDENT,),
    symptom="the same call alone is right; names the result beside other calls",
    unseen={Kind.OVERLAP_DEPENDENT: "what it gives beside other calls"},
    judge=judge,
    decides=lambda evidence: (
        comparable(evidence, Probe.ALONE, Probe.OVERLAPPED)
        and accepted(evidence, Probe.OVERLAPPED) is not None
        and is_decided(evidence)
    ),
    by_occasion=True,
    of_some_kernels=True,
    of_candidates=False,
)
