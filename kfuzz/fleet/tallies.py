"""What the units of one kernel come to together."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from kfuzz.core.event import ContractTally, KernelFinished, Note, Refusal, Region
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import CHARGED, Compared, Tried, Verdict

# The first that a unit came to holds for the kernel.
_ORDER: Final = (
    Verdict.VIOLATES, Verdict.ERROR, Verdict.CONFORMS, Verdict.UNDER_SPECIFIED,
    Verdict.NOT_APPLICABLE,
)  # fmt: skip


def added(one: KernelFinished, other: KernelFinished) -> KernelFinished:
    """Return what two units of a kernel come to; see `closed` for their findings.

    What is counted is added up; kinds of cases, which units share, are at least as many
    as the unit with the most has.
    """
    parts = (one, other)
    seconds = sum(p.cases / p.cases_per_s for p in parts if p.cases_per_s)
    cases = one.cases + other.cases
    names = dict.fromkeys([*one.contracts, *other.contracts])
    compared = _compared(one) | _compared(other)
    uncompared = _uncompared(compared, one.uncompared or other.uncompared)
    # Where a unit by itself left a verdict open for want of values alone.
    apart = all(p.uncompared and not p.findings for p in parts)
    return replace(
        one,
        operator=one.operator or other.operator,
        cases=cases,
        cases_per_s=cases / seconds if seconds else 0.0,
        contracts={
            name: _settled(
                _tally([p.contracts[name] for p in parts if name in p.contracts]),
                bool(uncompared),
                apart=apart,
            )
            for name in names
        },
        refusals=_refusals([*one.refusals, *other.refusals]),
        findings=(),
        paths={},
        worst_ratio=max(one.worst_ratio, other.worst_ratio),
        notes=_notes([*one.notes, *other.notes]),
        screened=one.screened + other.screened,
        bursts=one.bursts + other.bursts,
        strata=max(one.strata, other.strata),
        regions=_regions([*one.regions, *other.regions]),
        fenced=all(p.fenced for p in parts if p.cases) and (one.fenced or other.fenced),
        needs_gpu=one.needs_gpu and other.needs_gpu,
        tried=_tried([p.tried for p in parts if p.tried is not None]),
        uncompared=uncompared,
        compared=compared,
        proof=one.proof or other.proof,
    )


def closed(
    result: KernelFinished, findings: Sequence[Finding], paths: Mapping[str, str]
) -> KernelFinished:
    """Return a kernel's result with its findings, which decide its contracts.

    Args:
        result: of its units.
        findings: of the kernel over the run, as the corpus holds them.
        paths: their folders, by id.
    """
    made = replace(result, findings=tuple(findings), paths=dict(paths))
    if {f.id for f in findings} == {f.id for f in result.findings} and findings:
        return made  # of one unit, which has judged with them
    contracts = {}
    for name, tally in result.contracts.items():
        states = [f.state for f in findings if f.signature.contract == name]
        verdict = tally.verdict
        if any(state in CHARGED for state in states):
            verdict = Verdict.VIOLATES
        elif verdict is Verdict.VIOLATES or (states and verdict is Verdict.CONFORMS):
            # Not confirmed, or not on another device: the question is open.
            verdict = Verdict.UNDER_SPECIFIED
        contracts[name] = replace(tally, verdict=verdict)
    charged = any(f.state in CHARGED for f in findings)
    # A unit that found something has no reason, and what it found may not count.
    why = made.uncompared or _uncompared(
        _compared(result), "what was found of it does not count"
    )
    return replace(made, contracts=contracts, uncompared="" if charged else why)


def unfinished(kernel: str, why: str) -> KernelFinished:
    """Return the result of a kernel of which no unit came to its end."""
    return KernelFinished(kernel, "", 0, 0.0, {}, uncompared=why)


def _tally(parts: Sequence[ContractTally]) -> ContractTally:
    return ContractTally(
        min((p.verdict for p in parts), key=_ORDER.index),
        sum(p.decided for p in parts),
        sum(p.undecided for p in parts),
        sum(p.failed for p in parts),
    )


def _compared(part: KernelFinished) -> Compared:
    return part.compared or Compared(decided=not part.uncompared)


def _uncompared(compared: Compared, otherwise: str) -> str:
    """Return why no value was compared, "" if one of each result was."""
    return compared.lacking or ("" if compared.decided else otherwise)


def _settled(tally: ContractTally, idle: bool, *, apart: bool) -> ContractTally:
    """Return what units found of a contract, by whether all results were compared."""
    verdict = tally.verdict
    if idle and verdict is Verdict.CONFORMS:
        verdict = Verdict.UNDER_SPECIFIED
    elif not idle and apart and verdict is Verdict.UNDER_SPECIFIED:
        kept = tally.decided and not tally.failed
        verdict = Verdict.CONFORMS if kept else verdict
    return replace(tally, verdict=verdict)


def _refusals(every: Sequence[Refusal]) -> tuple[Refusal, ...]:
    made: dict[tuple[str, str], Refusal] = {}
    for one in every:
        key = (one.reason, one.remedy)
        held = made.get(key)
        more = held.cases if held else 0
        made[key] = replace(held or one, cases=one.cases + more)
    return tuple(made.values())


def _notes(every: Sequence[Note]) -> tuple[Note, ...]:
    counts: Counter[str] = Counter()
    for one in every:
        counts[one.note] += one.cases
    return tuple(Note(note, cases) for note, cases in counts.items())


def _regions(every: Sequence[Region]) -> tuple[Region, ...]:
    made: dict[tuple[str, str], Region] = {}
    for one in every:
        key = (one.sizes, one.family)
        if held := made.get(key):
            one = replace(
                one,
                cases=one.cases + held.cases,
                worst_ratio=max(one.worst_ratio, held.worst_ratio),
                failing=one.failing + held.failing,
            )
        made[key] = one
    return tuple(made.values())


def _tried(every: Sequence[Tried]) -> Tried | None:
    if not every:
        return None
    return Tried(
        cases=sum(t.cases for t in every),
        structures=max(t.structures for t in every),
        once=min(t.once for t in every),
    )
