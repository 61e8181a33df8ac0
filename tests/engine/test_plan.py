"""What costs much waits, what is new and cheap comes first, and nothing starves."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from kfuzz.core.budget import Spending
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.engine.search.plan import Costs, Pace, traits_of
from kfuzz.engine.search.record import Ledger

LIMIT = 3.0
RUN = 0.01
LOADING = 0.005
COMPILED = Spending(compiling=1.0, compiled=1)


def case_of(rows: int, n: int, seed: int = 0, family: str = "randn") -> Case:
    spec = TensorSpec((rows, n), ("d0", "d1"), "float32", fill=Fill(family, seed))
    return Case({"x": spec}, config=seed)


def drawn(seed: int, most: int = 20) -> Iterator[Case]:
    """Yield cases as a search draws them, of rows of up to 2^most elements."""
    chance = random.Random(seed)
    number = 0
    while True:
        number += 1
        n = max(2 ** chance.randrange(most + 1) + chance.choice((-1, 0, 1)), 1)
        yield case_of(chance.choice((1, 2, 7)), n, number, chance.choice("abcd"))


@dataclass
class Search:
    """A search whose kernel costs what a model says."""

    compiling: Callable[[Case], float]
    running: Callable[[Case], float] = lambda case: RUN
    compiles: bool = True
    cached: float = 0.0
    ran: list[Case] = field(default_factory=list)
    dearest: float = 0.0
    seconds: float = 0.0
    compiled: set[object] = field(default_factory=set)
    loaded: set[object] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.ledger = Ledger()
        self.pace = Pace(self.ledger, compiles=self.compiles)
        self.pace.limit = LIMIT

    def compile(self, case: Case) -> float:
        """Return the seconds that a compilation takes, if one is needed."""
        needed = self.compiling(case)
        key = traits_of(case).common, needed
        known, _ = key in self.compiled, self.compiled.add(key)
        return 0.0 if known else needed

    def load(self, case: Case) -> float:
        """Return what the child that judges needs to have a case's kernel."""
        key = traits_of(case).common, self.compiling(case)
        if key in self.loaded or not key[1]:
            return 0.0
        self.loaded.add(key)
        return self.compile(case) or LOADING

    def run(self, seconds: float = 60.0) -> None:
        draws, plan = drawn(1), self.pace.cases
        while self.seconds < seconds:
            case = next(draws)
            if plan.is_quick(case):
                self._judge(case)
            while (other := plan.due()) is not None:
                self._judge(other)
            self.seconds += 0.002

    def _judge(self, case: Case) -> None:
        compiling = self.load(case)
        running = self.running(case)
        spending = Spending(
            compiling, running, compiled=int(compiling > max(self.cached, LOADING))
        )
        self.pace.costs.take(case, spending, spending.total)
        self.pace.cases.ran(case, spending.total)
        self.ledger.visit(case)
        self.ran.append(case)
        self.seconds += spending.total
        self.dearest = max(self.dearest, spending.total)


def row(case: Case) -> int:
    return traits_of(case).row


def test_a_kernel_with_one_block_for_each_row_gets_many_cases_and_no_dear_one() -> None:
    search = Search(one_block)
    search.run()
    assert search.dearest <= 2 * LIMIT
    assert len(search.ran) > 1000
    rows = Counter(map(row, search.ran))
    assert all(rows[length] > 10 for length in range(14))
    assert rows[15]
    assert not rows[20]
    told = search.pace.told()
    assert told.startswith("rows above ")
    assert "tried late: compiling" in told


def test_a_kernel_that_goes_over_its_rows_is_not_kept_from_long_ones() -> None:
    search = Search(lambda case: 0.3)
    search.run()
    rows = Counter(map(row, search.ran))
    shares = [rows[length] / len(search.ran) for length in (5, 12, 20)]
    assert min(shares) > 0.5 * max(shares)
    assert not search.pace.told()


def test_work_that_takes_long_leaves_time_for_many_small_cases() -> None:
    search = Search(lambda case: 0.0, lambda case: 2e-5 * case.elements, compiles=False)
    search.run()
    assert search.dearest <= 2 * LIMIT
    assert len(search.ran) > 500
    assert "tried late: one takes about" in search.pace.told()


def test_what_is_slow_but_affordable_is_not_starved() -> None:
    """Half of the time goes to what waits, if it would take all of it."""

    def running(case: Case) -> float:
        return 1.0 if row(case) > 12 else RUN

    search = Search(lambda case: 0.0, running, compiles=False)
    search.run()
    slow = sum(running(case) for case in search.ran if row(case) > 12)
    assert 0.3 * search.seconds < slow < 0.7 * search.seconds


def test_where_all_is_too_dear_the_cheapest_runs() -> None:
    search = Search(lambda case: 0.0, lambda case: 10.0, compiles=False)
    search.run(100.0)
    assert len(search.ran) >= 5


def test_small_cases_run_however_long_they_take() -> None:
    pace = Pace(Ledger(), compiles=True)
    pace.limit = 0.0
    assert not pace.cases.is_quick(case_of(3, 1 << 16))
    assert pace.cases.due() is None
    small = case_of(3, 16)
    assert not pace.cases.is_quick(small)
    assert pace.cases.due() is small


def test_with_little_time_ordinary_compilations_are_not_left_out() -> None:
    search = Search(one_block)
    search.pace.limit = 0.05
    search.run(20.0)
    rows = {row(case) for case in search.ran}
    assert len(rows & {8, 9, 10, 11, 12, 13}) > 2
    assert not rows & {17, 18, 19, 20}


def one_block(case: Case) -> float:
    return 0.3 + 4.0 ** (row(case) - 15)


def test_a_cache_that_holds_short_rows_promises_no_long_ones() -> None:
    """Compiled in an earlier run, up to there: beyond they are as dear as ever."""
    search = Search(
        lambda case: 0.005 + row(case) * 1e-6 if row(case) < 15 else one_block(case),
        cached=0.01,
    )
    search.run(20.0)
    assert search.dearest <= 2 * LIMIT
    assert len(search.ran) > 500


def test_one_stall_does_not_keep_a_size_from_being_tried_again() -> None:
    costs = Costs(compiles=False)
    usual, stalled = Spending(rest=0.003), Spending(rest=8.8)
    for n in (4, 4, 8):
        costs.take(case_of(3, n), usual, 0.003)
    long = traits_of(case_of(3, 300))
    costs.take(case_of(3, 300), stalled, 8.8)
    assert costs.expected(long).running < 1.0
    costs.take(case_of(3, 300), stalled, 8.8)
    assert costs.expected(long).running > 8.0, "another one confirms it"


@pytest.mark.parametrize("constant", [True, False])
def test_whether_sizes_are_constants_is_learnt(constant: bool) -> None:
    costs = Costs(compiles=True)
    assert costs.compilations.is_constant("row")
    for number in range(1, 12):
        case = case_of(3, (1 << number) + 3)
        spent = COMPILED if constant or number == 1 else Spending()
        costs.take(case, spent, 0.5)
    assert costs.compilations.is_constant("row") is constant
    long = costs.expected(traits_of(case_of(3, (1 << 19) + 3)))
    assert (long.compiling > 10) is constant
