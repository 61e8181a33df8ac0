"""The search of one witness: as a campaign's, but nothing is reduced or stored."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.witnesses.roster import Entry
from kfuzz.contracts.witnesses.witness import Witness
from kfuzz.core.budget import Depth
from kfuzz.core.calibration import Outcome, Role
from kfuzz.core.codec import decode, encode
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Failure, Verdict
from kfuzz.engine.search.case_drawing import round_seed, search_round, strategy_of
from kfuzz.engine.workers.jobs import Stopped
from kfuzz.evaluation import worker
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.evaluation.functional import passes_functional
from kfuzz.execution.device.backends import BACKENDS

# As a campaign's: a gross fault shows in the first round.
FIRST_ROUND: Final = 25
LONGEST_ROUND: Final = 100
# Occurrences of one symptom that are diagnosed, and then each power of two: more where
# only a diagnosis shows the class that a witness violates.
DIAGNOSED: Final = 8
DIAGNOSED_FOR_CLASS: Final = 64

# Conforming witnesses use their budget up, and those in the interpreter, which costs
# a millisecond a program, use less.
CONFORMING_SHARE: Final = 4
INTERPRETED_SHARE: Final = 16

Judge = Callable[[Case, Depth], CaseReport]


@dataclass
class Found:
    """What a search has shown so far.

    Attributes:
        cases: cases judged.
        decided: cases that bore on a class and were kept, by class.
        contracts: classes found broken, with the first message of each.
        problem: what kept kfuzz from judging a case, "" if nothing did.
    """

    cases: int = 0
    decided: Counter[str] = field(default_factory=Counter)
    contracts: dict[str, str] = field(default_factory=dict)
    problem: str = ""


def share(entry: Entry, cases: int) -> int:
    """Return how many cases a witness gets."""
    if entry.role is not Role.CONFORMING:
        return cases
    interpreted = not BACKENDS[entry.backend].has.native
    return max(cases // (INTERPRETED_SHARE if interpreted else CONFORMING_SHARE), 1)


def outcome_of(entry: Entry, found: Found, *, functional: bool) -> Outcome:
    """Return what a search says about a witness."""
    return Outcome(
        kernel=entry.witness.kernel,
        operator=entry.load().operator.name_in_contracts,
        role=entry.role,
        contract=entry.witness.contract,
        backend=entry.backend,
        functional=functional,
        cases=found.cases,
        decided={n: k for n, k in sorted(found.decided.items()) if k},
        found=dict(found.contracts),
        problem=found.problem,
    )


def search(entry: Entry, judge: Judge, *, cases: int, seed: int) -> Found:
    """Judge cases of a witness until the class that it violates is broken, or any.

    Args:
        entry: the witness.
        judge: judges a case at a depth, "search" or "full".
        cases: see `share`.
        seed: everything drawn depends on it.

    Raises:
        Stopped: once the judge has.
    """
    kernel, until = entry.load(), entry.witness.contract
    cases = share(entry, cases)
    found = Found()
    most = DIAGNOSED_FOR_CLASS if until in _TOLD_APART else DIAGNOSED
    stopped: list[Stopped] = []  # Hypothesis would take it for a failure
    symptoms: Counter[tuple[object, ...]] = Counter()

    def is_over() -> bool:
        wanted = until in found.contracts if until else bool(found.contracts)
        over = bool(stopped) or wanted or bool(found.problem)
        return over or found.cases >= cases

    def once(case: Case) -> CaseReport | None:
        if is_over():
            return None
        try:
            return judged(case)
        except Stopped as why:
            stopped.append(why)
            return None

    def judged(case: Case) -> CaseReport:
        report = judge(case, Depth.SEARCH)
        found.cases += 1
        found.problem = report.error or ""
        for contract, verdict in report.verdicts.items():
            found.decided[contract] += verdict is Verdict.CONFORMS
        failure = report.failure
        if failure is not None:
            symptoms[failure.signature(kernel.name).symptom] += 1
            times = symptoms[failure.signature(kernel.name).symptom]
            if times <= most or times & (times - 1) == 0:
                failure = _diagnosed(case, failure, judge)
            found.contracts.setdefault(failure.contract, failure.message)
        return report

    drawn = strategy_of(kernel, BACKENDS[entry.backend].limits.sizes)
    assert drawn is not None
    number = 0
    while not is_over():
        size = min(FIRST_ROUND << min(number, 2), LONGEST_ROUND, cases - found.cases)
        before = found.cases
        search_round(
            drawn, once, cases=size, seed_value=round_seed(seed, kernel.name, number)
        )
        number += 1
        if found.cases == before:  # its domain holds no more cases
            break
    if stopped:
        raise stopped[0]
    return found


def _diagnosed(case: Case, failure: Failure, judge: Judge) -> Failure:
    """Return the failure once the probes that tell classes apart have run."""
    if failure.contract not in _TOLD_APART:
        return failure
    return judge(case, Depth.FULL).failure or failure


_TOLD_APART: Final = frozenset(
    c.id for c in ATTRIBUTION if c.provisional and not c.of_gradients
)


Message = dict[str, Any]


def answer(message: Message) -> Message:
    """Run the functional test of a witness, then search it.

    With 0 cases nothing is searched.
    """
    entry, device = decode(Entry, message["entry"], "entry"), message["device"]
    functional = _passes(entry.witness, device)
    budget = BACKENDS[entry.backend].limits.sizes
    evaluator = Evaluator(
        entry.load(), setting_of(device, budget, [c.id for c in ATTRIBUTION])
    )

    def judge(case: Case, depth: Depth) -> CaseReport:
        if evaluator.spent:
            return CaseReport({}, error="the device answers no more")
        return evaluator.judge(case, depth)

    found = Found()
    if message["cases"]:
        found = search(entry, judge, cases=message["cases"], seed=message["seed"])
    outcome = outcome_of(entry, found, functional=functional)
    return {"outcome": encode(outcome), "spent": evaluator.spent}


def _passes(witness: Witness, device: str) -> bool:
    """Whether a kernel passes the functional test; what raises does not."""
    try:
        return passes_functional(witness, device=device)
    except Exception:
        return False


def serve() -> Callable[[Message], Message]:
    """Return the handler of a fresh child."""
    worker.serve()  # one thread, as every child
    return answer
