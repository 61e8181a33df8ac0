"""C-ORD-02: the result is as deterministic as declared."""

from kfuzz.contracts.evidence import Batches, Evidence, Rows
from kfuzz.contracts.language import (
    ContractClass,
    Probe,
    Structure,
)
from kfuzz.contracts.prose import promised
from kfuzz.contracts.reading import (
    ORDERS,
    UNDER_LOAD,
    accesses,
    agree,
    comparable,
    comparison,
    comparisons,
    differing,
    first_of,
    miss_at,
    miss_of,
    rows_differing,
)
from kfuzz.core.verdict import Access, Failure, Kind

# One program cannot race; the whole batch, run twice, shows nothing of others.
_PROGRAMS = 2


def judge(evidence: Evidence) -> Failure | None:
    """Return the race, the repeat or the batch that the result depends on."""
    return _raced(evidence) or unrepeatable(evidence) or _batched(evidence)


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
        return _unrepeated(
            f"{miss.describe()}, in {len(wrong)} of {len(missed)} equal calls; the "
            "others give what they should",
            found,
            int(at_times.sum()),
        )
    return None


def _other_bits(evidence: Evidence, probes: tuple[Probe, ...]) -> Failure | None:
    if miss_of(evidence) is not None or evidence.declaration.determinism == "none":
        return None
    for probe in probes:
        places = differing(evidence, Probe.BASE, probe)
        found = first_of(places)
        if found is not None:
            output, index = found
            one = float(evidence.base.outputs[output][index])
            other = float(evidence.runs[probe].outputs[output][index])
            where = f"{output}[{', '.join(map(str, index))}]"
            return _unrepeated(
                f"{where} = {one:.9g}, and {other:.9g} when the same call is made "
                f"again{UNDER_LOAD.get(probe, '')}",
                found,
                int(places[output].sum()),
            )
    return None


def _unrepeated(
    message: str, found: tuple[str, tuple[int, ...]], elements: int
) -> Failure:
    # The values stand in the message only: the next run may have others.
    return Failure(
        contract="C-ORD-02",
        kind=Kind.NONDETERMINISTIC,
        message=message,
        output=found[0],
        index=found[1],
        elements=elements,
    )


def _raced(evidence: Evidence) -> Failure | None:
    races = accesses(evidence, "race")
    if evidence.declaration.determinism == "none" or not races:
        return None
    if not agree(evidence, Probe.BASE, Probe.REPEAT):
        return None
    for probe in ORDERS:
        if comparable(evidence, probe):
            places = differing(evidence, Probe.BASE, probe)
            found = first_of(places)
            if found is not None and _tells(evidence, probe, found):
                return _failure(evidence, probe, found, int(places[found[0]].sum()))
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
            return Failure(
                contract="C-ORD-02",
                kind=Kind.BATCH_DEPENDENT,
                message=f"{output}[{', '.join(map(str, at))}] = {one:.9g} in the batch "
                f"of {len(whole.rows)} rows and {other:.9g} in {_told(whole, batch)}",
                output=output,
                index=index,
                elements=int(places[output].sum()),
            )
    return None


def _told(whole: Rows, batch: Rows) -> str:
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


def _tells(
    evidence: Evidence, probe: Probe, found: tuple[str, tuple[int, ...]]
) -> bool:
    """Whether a difference shows that the order matters.

    Where the store is stochastic the seed may be the kernel's own: only what the other
    order makes wrong does.
    """
    if evidence.declaration.store != "stochastic":
        return True
    output, index = found
    made = comparison(evidence, output, probe)
    return made is not None and bool(made.missed[0][index])


def _failure(
    evidence: Evidence, probe: Probe, found: tuple[str, tuple[int, ...]], elements: int
) -> Failure:
    races, (output, index) = accesses(evidence, "race"), found
    one = float(evidence.base.outputs[output][index])
    other = float(evidence.runs[probe].outputs[output][index])
    where = f"{output}[{', '.join(map(str, index))}]"
    return Failure(
        contract="C-ORD-02",
        kind=Kind.RACE,
        message=f"{where} = {one:.9g} or {other:.9g}, by the order of programs: "
        f"{_described(races[0])}",
        output=output,
        index=index,
        elements=elements,
        accesses=races,
    )


def _described(race: Access) -> str:
    """Return which programs store to which memory, and where in the source."""
    place = f", at {race.line}" if race.line else ""
    return (
        f"the kernel's programs {race.other} and {race.program} store different "
        f"values to one element of {race.memory}{place}"
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
    judge=judge,
    decides=_decides,
    applies=lambda operator, claims: (
        claims.determinism != "none" or claims.batch_invariant
    ),
    beyond_scope=True,
    of_values=False,
    by_repeats=True,
)
