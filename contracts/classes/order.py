"""Order: of the data, of programs, of calls."""

from typing import Final

from kfuzz.contracts.classes.precision import failure_at, first_changed
from kfuzz.contracts.evidence import (
    Batches,
    Difference,
    Evidence,
    Permuted,
    Rows,
    element,
)
from kfuzz.contracts.language import ContractClass, Probe, Structure
from kfuzz.contracts.prose import promised
from kfuzz.contracts.reading import (
    ORDERS,
    UNDER_LOAD,
    accepted,
    accesses,
    agree,
    comparable,
    comparison,
    comparisons,
    conforms,
    difference,
    first_of,
    is_decided,
    miss_at,
    miss_of,
    rows_differing,
)
from kfuzz.core.verdict import Access, Failure, Kind

# C-ORD-01: any schedule stays within the bound of the declared reduction.


C_ORD_01 = ContractClass(
    **promised("C-ORD-01"),
    rank=210,
    level=3,
    sampled=(Probe.PERMUTED,),
    kinds=(Kind.ORDER_DEPENDENT,),
    later_kinds=(Kind.ORDER_DEPENDENT,),
    unseen={Kind.ORDER_DEPENDENT: "what it gives for data in another order"},
    judge=lambda evidence: first_changed(
        evidence, "C-ORD-01", Permuted, Kind.ORDER_DEPENDENT
    ),
    decides=lambda evidence: bool(evidence.of(Permuted)),
    applies=lambda operator, claims: (
        operator.dim is not None or operator.reduced is not None
    ),
    by_occasion=True,
    changed_data=True,
)


# C-ORD-02: the result is as deterministic as declared.

# One program cannot race; the whole batch, run twice, shows nothing of others.
_PROGRAMS = 2


def unrepeatable(evidence: Evidence) -> Failure | None:
    """What equal calls in equal memory give on a GPU, where it is not the same.

    An element that some of them miss and others do not is reported whatever the kernel
    declares. Other bits are reported where nothing is missed and bits were promised: a
    wrong formula may well add its terms in any order.
    """
    probes = tuple(p for p in UNDER_LOAD if comparable(evidence, p))
    if (
        not probes
        or not comparable(evidence, Probe.BASE)
        or evidence.acceptance is None
    ):
        return None
    if evidence.declaration.store == "stochastic":  # another draw, perhaps
        return None
    if comparable(evidence, Probe.REPEAT):
        probes = (Probe.REPEAT, *probes)
    return _missed_at_times(evidence, probes) or _other_bits(evidence, probes)


def _missed_at_times(evidence: Evidence, probes: tuple[Probe, ...]) -> Failure | None:
    every = {p: comparisons(evidence, p) for p in (Probe.BASE, *probes)}
    for output in evidence.acceptance or {}:
        missed = {p: m[output].missed[0] for p, m in every.items() if output in m}
        if len(missed) < len(every):
            continue
        always, ever = missed[Probe.BASE], missed[Probe.BASE]
        for mask in missed.values():
            always, ever = always & mask, ever | mask
        at_times = ever & ~always
        found = first_of({output: at_times})
        if found is None:
            continue
        index = found[1]
        wrong = [p for p, mask in missed.items() if bool(mask[index])]
        miss = miss_at(
            evidence, output, index, Kind.VALUE, int(at_times.sum()), wrong[0]
        )
        text = f"{miss.describe()}, in {len(wrong)} of {len(missed)} equal calls; the "
        text += "others give what they should"
        return failure_at("C-ORD-02", Kind.NONDETERMINISTIC, text, miss)
    return None


def _other_bits(evidence: Evidence, probes: tuple[Probe, ...]) -> Failure | None:
    if miss_of(evidence) is not None or evidence.declaration.determinism == "none":
        return None
    for probe in probes:
        found = difference(evidence, Probe.BASE, probe)
        if found is not None:
            where = element(found.output, found.index)
            text = f"{where} = {found.one:.9g}, and {found.other:.9g} when the same "
            text += f"call is made again{UNDER_LOAD.get(probe, '')}"
            return failure_at("C-ORD-02", Kind.NONDETERMINISTIC, text, found)
    return None


def _raced(evidence: Evidence) -> Failure | None:
    races = accesses(evidence, "race")
    if not races or not agree(evidence, Probe.BASE, Probe.REPEAT):
        return None
    for probe in ORDERS:
        if comparable(evidence, probe):
            found = difference(evidence, Probe.BASE, probe)
            if found is not None and _shows_order(evidence, probe, found):
                where = element(found.output, found.index)
                text = f"{where} = {found.one:.9g} or {found.other:.9g}, by the order "
                text += f"of programs: {_described(races[0])}"
                return failure_at("C-ORD-02", Kind.RACE, text, found, races)
    return None


def _batched(evidence: Evidence) -> Failure | None:
    """Rows whose bits follow the batch that they are computed in."""
    called = evidence.of(Batches)
    if not called or not called[0].run.comparable:
        return None
    whole = called[0]
    for batch in called[1:]:
        if not batch.run.comparable:
            continue
        places = rows_differing(batch, whole)
        found = first_of(places)
        if found is not None:
            output, index = found
            axis = batch.axes[output]
            at = (*index[:axis], batch.rows[index[axis]], *index[axis + 1 :])
            one = float(whole.run.outputs[output][at])
            other = float(batch.run.outputs[output][index])
            apart = Difference(output, index, one, other, int(places[output].sum()))
            text = f"{element(output, at)} = {one:.9g} in the batch of "
            text += f"{len(whole.rows)} rows and {other:.9g} in {_part(whole, batch)}"
            return failure_at("C-ORD-02", Kind.BATCH_DEPENDENT, text, apart)
    return None


def _part(whole: Rows, batch: Rows) -> str:
    """Return which part of the whole a batch is, in words."""
    rows = batch.rows
    if len(rows) < len(whole.rows):
        first, last = rows[0], rows[-1]
        if first == last:
            return f"a batch of row {first} alone"
        return f"a batch of rows {first} to {last}"
    if rows == whole.rows:
        return "the same batch again"
    return "the same rows in reverse order"


def _shows_order(evidence: Evidence, probe: Probe, found: Difference) -> bool:
    """Whether a difference shows that the order matters.

    Where the store is stochastic the seed may be the kernel's own: only what the other
    order makes wrong does. So it is where bits are not promised, of what is right.
    """
    if evidence.declaration.promises_bits:
        return True

    def wrong(probe: Probe) -> bool:
        made = comparison(evidence, found.output, probe)
        return made is not None and bool(made.missed[0][found.index])

    right = evidence.declaration.determinism != "none" or not wrong(Probe.BASE)
    return right and wrong(probe)


_DOES: Final = {
    "load": "loads",
    "store": "stores to",
    "atomic": "changes by an atomic",
}


def _described(race: Access) -> str:
    """Return which programs meet in which memory, and where in the source."""
    if race.access == race.other_access == "store" and race.line == race.other_line:
        place = f", at {race.line}" if race.line else ""
        return (
            f"the kernel's programs {race.other} and {race.program} store different "
            f"values to one element of {race.memory}{place}"
        )
    (one, at), (other, there) = (
        (_DOES.get(access, access), f" at {line}" if line else "")
        for access, line in (
            (race.access, race.line),
            (race.other_access, race.other_line),
        )
    )
    return (
        f"the kernel's program {race.program} {one} element {race.offset} of "
        f"{race.memory}{at}, which program {race.other} {other}{there}, and nothing "
        "orders them"
    )


def _decides(evidence: Evidence) -> bool:
    if len(evidence.of(Batches)) > _PROGRAMS:
        return True
    if evidence.declaration.determinism == "none":
        return False
    if all(comparable(evidence, probe) for probe in UNDER_LOAD):
        return True
    if evidence.base.programs < _PROGRAMS or not evidence.base.comparable:
        return False
    return not accesses(evidence, "race") or agree(evidence, Probe.BASE, Probe.REPEAT)


C_ORD_02 = ContractClass(
    **promised("C-ORD-02", Structure.EXACT),
    rank=60,
    level=3,
    core=True,
    sampled=(Probe.REPEAT, *ORDERS, *UNDER_LOAD, Probe.SLICED),
    kinds=(Kind.RACE, Kind.NONDETERMINISTIC, Kind.BATCH_DEPENDENT),
    later_kinds=(Kind.RACE, Kind.NONDETERMINISTIC, Kind.BATCH_DEPENDENT),
    by_chance=(Kind.NONDETERMINISTIC,),
    unseen={
        Kind.RACE: "which of two programs stores last",
        Kind.NONDETERMINISTIC: "what it gives when it is called again beside "
        "other work",
        Kind.BATCH_DEPENDENT: "what the same rows are in another batch",
    },
    judge=lambda evidence: (
        _raced(evidence) or unrepeatable(evidence) or _batched(evidence)
    ),
    decides=_decides,
    applies=lambda operator, claims: (
        claims.determinism != "none" or claims.batch_invariant
    ),
    beyond_scope=True,
    of_values=False,
    by_repeats=True,
)


# C-ORD-03: calls that overlap give what they give one after the other.

TOGETHER = "where several calls overlap"
APART = "one after the other they are correct"


def _judge_overlap(evidence: Evidence) -> Failure | None:
    """Return what a call left that overlapped others and is right by itself."""
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
        text = f"{miss.describe()} {TOGETHER}; {APART}"
        return failure_at("C-ORD-03", Kind.OVERLAP_DEPENDENT, text, miss)
    if evidence.declaration.determinism != "bitwise":
        return None
    found = difference(evidence, Probe.ALONE, Probe.OVERLAPPED)
    if found is None:
        return None
    where = element(found.output, found.index)
    text = f"{where} = {found.other:.9g} {TOGETHER}, {found.one:.9g} by itself; "
    text += "bitwise determinism is declared"
    return failure_at("C-ORD-03", Kind.OVERLAP_DEPENDENT, text, found)


C_ORD_03 = ContractClass(
    **promised("C-ORD-03", Structure.COMPOSITE),
    rank=70,
    level=3,
    sampled=(Probe.ALONE, Probe.OVERLAPPED),
    kinds=(Kind.OVERLAP_DEPENDENT,),
    later_kinds=(Kind.OVERLAP_DEPENDENT,),
    unseen={Kind.OVERLAP_DEPENDENT: "what it gives beside other calls"},
    judge=_judge_overlap,
    decides=lambda evidence: (
        comparable(evidence, Probe.ALONE, Probe.OVERLAPPED)
        and accepted(evidence, Probe.OVERLAPPED) is not None
        and is_decided(evidence)
    ),
    by_occasion=True,
    of_some_kernels=True,
    of_candidates=False,
)
