"""What the units of a kernel come to together: what one of them compared counts."""

from dataclasses import replace
from functools import reduce

import pytest

from kfuzz.cli.streams import ExitCode, Outcome
from kfuzz.core.event import ContractTally, KernelFinished
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import Compared, State, Verdict
from kfuzz.features.fleet.driver import added, closed
from tests.helpers.events import LARGEST, SEARCHED, UNDECIDED, finished
from tests.helpers.findings import finding

OPEN = {"K-VAL-01": ContractTally(Verdict.UNDER_SPECIFIED, 3, 4)}


def unit(decided: bool, **results: bool) -> KernelFinished:
    """Return what a unit comes to that compared some results and lacked others."""
    compared = Compared(results, decided)
    why = compared.lacking or ("" if decided else "the kernel rejected every case")
    if not why:
        return finished(compared=compared)
    contracts = OPEN if decided else UNDECIDED
    return finished(contracts=contracts, uncompared=why, compared=compared)


def together(
    *units: KernelFinished, findings: tuple[Finding, ...] = ()
) -> tuple[KernelFinished, ExitCode]:
    made = closed(reduce(added, units), findings, {})
    outcome = Outcome(fail_on_any=False)
    outcome.feed(made)
    return made, outcome.code()


WITHOUT_Z = unit(True, y=True, z=False)
WITHOUT_Y = unit(True, y=False, z=True)
NOTHING = unit(False)


@pytest.mark.parametrize("units", [(WITHOUT_Z, WITHOUT_Y), (WITHOUT_Y, WITHOUT_Z)])
def test_units_that_lacked_other_results_compared_all(
    units: tuple[KernelFinished, ...],
) -> None:
    made, code = together(*units)
    assert (made.uncompared, code) == ("", ExitCode.OK)
    assert made.contracts["K-VAL-01"].verdict is Verdict.CONFORMS


@pytest.mark.parametrize(
    ("units", "said"),
    [
        ((NOTHING, NOTHING), "rejected every case"),
        ((WITHOUT_Z, WITHOUT_Z), "no element of z "),
        ((WITHOUT_Z, NOTHING), "no element of z "),
        ((unit(True), unit(False, y=False)), "no element of y "),
        ((unit(False, y=True, z=False), unit(False, y=False, z=True)), "element of"),
        (
            (unit(True, y=False, z=False, w=True), unit(True, y=True, z=False)),
            "no element of z ",
        ),
    ],
)
def test_what_no_unit_compared_is_not_green(
    units: tuple[KernelFinished, ...], said: str
) -> None:
    for order in (units, units[::-1]):
        made, code = together(*order)
        assert said in made.uncompared
        assert code is ExitCode.NOTHING_TO_RUN
        assert made.contracts["K-VAL-01"].verdict is Verdict.UNDER_SPECIFIED


def test_a_unit_that_compared_all_stands_for_one_that_had_nothing() -> None:
    made, code = together(NOTHING, unit(True, y=True), NOTHING)
    assert (made.uncompared, code) == ("", ExitCode.OK)


def test_a_violation_that_does_not_count_leaves_no_green_run() -> None:
    """Of a quarantined device: what the unit held for enough is gone."""
    attributed = finding()
    crashed = finished(attributed, contracts=UNDECIDED, compared=Compared())
    assert together(crashed, findings=(attributed,))[1] is ExitCode.VIOLATION
    for units in ((crashed,), (crashed, NOTHING), (crashed, crashed)):
        made, code = together(*units)
        assert made.uncompared
        assert code is ExitCode.NOTHING_TO_RUN


def test_what_was_not_confirmed_stays_open() -> None:
    flaky = finding(state=State.FLAKY)
    found = finished(
        flaky, contracts=OPEN, uncompared=WITHOUT_Z.uncompared,
        compared=WITHOUT_Z.compared,
    )  # fmt: skip
    made, _ = together(found, WITHOUT_Y, findings=(flaky,))
    assert made.contracts["K-VAL-01"].verdict is Verdict.UNDER_SPECIFIED


def test_what_units_searched_is_added_up_by_classes_of_sizes() -> None:
    small, some, none, above = SEARCHED
    larger = replace(some, above=65_536, most=1 << 22)
    found = replace(none, cases=9, structures=2, lacks="")
    units = [
        finished(searched=SEARCHED, largest=LARGEST),
        finished(searched=(small, found, larger, above), largest={"N": 5, "K": 7}),
    ]
    made, _ = together(*units)
    assert [each.most for each in made.searched] == [256, 4096, 65_536, 1 << 22, None]
    assert (made.searched[0].cases, made.searched[0].structures) == (422, 40)
    assert (made.searched[2].cases, made.searched[2].lacks) == (9, "")
    assert made.searched[-1].lacks == "the limit on the CPU"
    assert made.largest == {"M": 65, "N": 4096, "K": 7}
