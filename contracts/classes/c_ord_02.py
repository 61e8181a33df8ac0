"""C-ORD-02: the result is as deterministic as declared."""

from typing import TYPE_CHECKING

from kfuzz.contracts.language import (
    ContractClass,
    Probe,
    Protocol,
    Structure,
    Tolerance,
    ViolationSignature,
)
from kfuzz.contracts.repeats import ORDERS, accesses, agree, comparable, first_of
from kfuzz.core.verdict import Access, Failure, Kind

if TYPE_CHECKING:
    from kfuzz.contracts.view import View

ID = "C-ORD-02"
# One program cannot race.
_PROGRAMS = 2


def judge(view: "View") -> Failure | None:
    """Return the race that the result depends on."""
    races = accesses(view, "race")
    if not races or not agree(view, Probe.BASE, Probe.REPEAT):
        return None
    for probe in ORDERS:
        if comparable(view, probe):
            places = view.differing(Probe.BASE, probe)
            found = first_of(places)
            if found is not None and _tells(view, probe, found):
                return _failure(view, probe, found, int(places[found[0]].sum()))
    return None


def _tells(view: "View", probe: Probe, found: tuple[str, tuple[int, ...]]) -> bool:
    """Whether a difference shows that the order matters.

    Where the store is stochastic the seed may be the kernel's own: only what the other
    order makes wrong does.
    """
    if view.declaration.store != "stochastic":
        return True
    output, index = found
    made = view.comparison(output, probe)
    return made is not None and bool(made.missed[0][index])


def _failure(
    view: "View", probe: Probe, found: tuple[str, tuple[int, ...]], elements: int
) -> Failure:
    races, (output, index) = accesses(view, "race"), found
    one = float(view.base.outputs[output][index])
    other = float(view.runs[probe].outputs[output][index])
    where = f"{output}[{', '.join(map(str, index))}]"
    return Failure(
        contract=ID,
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


def _decides(view: "View") -> bool:
    if view.base.programs < _PROGRAMS or not view.base.comparable:
        return False
    return not accesses(view, "race") or agree(view, Probe.BASE, Probe.REPEAT)


CLASS = ContractClass(
    id=ID,
    title="the result is as deterministic as declared",
    scope="kernels in Triton's interpreter with determinism run_to_run or bitwise",
    precondition="Every case on which the kernel returns and several programs ran.",
    postcondition="No element of a result follows the order in which programs run "
    "because two of them store different values to one address.",
    tolerance=Tolerance(
        Structure.EXACT,
        "equal bits in every order of programs",
        "programs of a launch have no order; atomics order those that meet at one",
    ),
    protocol=Protocol(
        probes=(Probe.BASE,),
        on_miss=(),
        sampled=(Probe.REPEAT, *ORDERS),
        confirmation="reproduces",
        text="The interpreter notes stores of different values to one address by two "
        "programs that no atomic operation orders. Where there are any, the case runs "
        "again with the programs of each launch in reverse order, and with either "
        "party of the first race as the last program.",
    ),
    signature=ViolationSignature(
        kinds=(Kind.RACE,),
        text="names the line, both programs and the memory; a race on which no result "
        "depends is a note",
    ),
    judge=judge,
    decides=_decides,
    applies=lambda operator, claims: claims.determinism != "none",
)
