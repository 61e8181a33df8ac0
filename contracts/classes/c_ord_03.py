"""C-ORD-03: calls that overlap give what they give one after the other."""

from kfuzz.contracts.evidence import Collected, Evidence, Torn
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
)
from kfuzz.core.verdict import Failure, Kind

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
        return Failure("C-ORD-03", Kind.OVERLAP_DEPENDENT, text, trace=raised.traceback)
    if run.metadata is not None:
        wrong = run.metadata
        text = f"{wrong.message} {TOGETHER}; {APART}"
        return Failure("C-ORD-03", Kind.OVERLAP_DEPENDENT, text, output=wrong.output)
    miss = miss_of(evidence, Probe.OVERLAPPED)
    if miss is not None:
        # The values stand in the message only: they may be those of other data.
        return Failure(
            "C-ORD-03",
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
        "C-ORD-03",
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
        "C-ORD-03",
        Kind.OVERLAP_DEPENDENT,
        f"the sum over two GPUs of {where} is {torn.got:.9g} where the next call "
        f"overlaps the all-reduce, {torn.wanted:.9g} after it{some}",
        output=torn.output,
        detail=COLLECTIVE,
        index=torn.index,
        elements=torn.elements,
    )


C_ORD_03 = ContractClass(
    **promised("C-ORD-03", Structure.COMPOSITE),
    rank=70,
    level=3,
    sampled=(Probe.ALONE, Probe.OVERLAPPED),
    kinds=(Kind.OVERLAP_DEPENDENT,),
    later_kinds=(Kind.OVERLAP_DEPENDENT,),
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
