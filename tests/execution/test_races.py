"""Races in Triton's interpreter: each planted one is seen, and no twin has any."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.execution.calls.results import Invocation, Options, execute
from kfuzz.execution.interpreter import races, vectorised
from kfuzz.execution.interpreter.races import RaceLog
from kfuzz.execution.interpreter.watch import interpreting
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.memory.slots import Arena
from kfuzz.numerics.run import Run
from tests.benchmarks.planted_races.kernels import PAIRS, Pair

pytestmark = pytest.mark.skipif(
    not interpreting(), reason="Triton compiles kernels here"
)
N = 40


def run(pair: Pair, *, race: bool, **options: Any) -> Run:
    """Call one kernel of a pair on numbers of which no two are equal."""
    made = called(pair, race=race, **options)
    assert made.raised is None, made.raised
    return made


def called(pair: Pair, *, race: bool, **options: Any) -> Run:
    """Call it where it may raise."""
    values: dict[str, Tensor] = {}
    specs = {}
    for name, given in pair.inputs.items():
        axes = tuple(given.dims.split())
        shape = (N,) * len(axes)
        if given.role == "index":
            values[name] = (torch.arange(N) * 7 % N).int() // 2
        else:
            values[name] = (torch.arange(N ** len(axes)) * 1009 % 1601 + 1).float()
        values[name] = values[name].reshape(shape)
        dtype = str(values[name].dtype).removeprefix("torch.")
        specs[name] = TensorSpec(shape, axes, dtype, values=bytes(0))
    asked = Invocation(pair.make(race), Case(specs), {}, 16, Poison.NAN)
    return execute(
        asked, values, arena=Arena("cpu"), fresh=Poison.NAN, options=Options(**options)
    )


@pytest.mark.parametrize("name", PAIRS)
def test_a_planted_race_is_seen_with_both_parties_and_its_twin_has_none(
    name: str,
) -> None:
    pair = PAIRS[name]
    found = [a for a in run(pair, race=True).accesses if a.where == "race"]
    assert found
    for access in found:
        assert access.program != access.other
        assert "store" in {access.access, access.other_access} or (
            {access.access, access.other_access} == {"load", "atomic"}
        )
        for line in (access.line, access.other_line):
            assert line.startswith("tests/benchmarks/planted_races/kernels.py:")
    assert run(pair, race=False).accesses == ()


@pytest.mark.parametrize("name", PAIRS)
def test_a_result_depends_on_each_of_them(name: str) -> None:
    """On the order of programs, or on loads that come before what they race with."""
    pair = PAIRS[name]
    base = run(pair, race=True)
    first = next(a for a in base.accesses if a.where == "race")
    orders: list[dict[str, Any]] = [{"reverse": True}, {"outdated": True}]
    orders += [{"last": first.program}, {"last": first.other}]
    assert any(differs(pair, order) for order in orders)


@pytest.mark.parametrize("name", PAIRS)
def test_programs_at_once_leave_what_they_leave_one_after_the_other(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, found = PAIRS[name], []
    for least in (2, 1 << 40):
        monkeypatch.setattr(vectorised, "LEAST_PROGRAMS", least)
        monkeypatch.setattr(vectorised, "_skipped", {})
        found.append([
            (made.accesses, {n: y.numpy().tobytes() for n, y in made.outputs.items()})
            for made in (run(pair, race=race) for race in (True, False))
        ])  # fmt: skip
    assert found[0] == found[1]


def differs(pair: Pair, order: dict[str, Any]) -> bool:
    """Whether another order leaves another result; waiting in vain is none."""
    results = []

    def kept(race: bool) -> Callable[..., Tensor]:
        call = pair.make(race)

        def keeping(*arguments: Tensor) -> Tensor:
            made = call(*arguments)
            results.append(made.clone())
            return made

        return keeping

    for options in ({}, order):
        if (made := called(pair._replace(make=kept), race=True, **options)).raised:
            assert "waits" in made.raised.message
            return False
    one, other = (x.reshape(-1).numpy().view(np.uint8) for x in results)
    return not np.array_equal(one, other)


@triton.jit
def _polls(x, y, state, n, MODIFIER: tl.constexpr, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    if program == 0:
        tl.store(state + 1, tl.load(x) * 2)
        tl.store(state, 1.0)
    else:
        while tl.load(state, cache_modifier=MODIFIER) == 0:
            pass
    value = tl.load(x + at, mask=at < n) + tl.load(state + 1)
    tl.store(y + at, value, mask=at < n)


def test_a_load_that_no_cache_may_serve_orders_what_follows_it() -> None:
    def make(race: bool) -> Callable[..., Tensor]:
        def call(x: Tensor) -> Tensor:
            y, state = torch.empty_like(x), x.new_zeros(2)
            modifier = "" if race else ".cv"
            _polls[(5,)](x, y, state, len(x), MODIFIER=modifier, BLOCK=8)
            return y

        return call

    pair = Pair(make, lambda x: x + 2 * x[0], PAIRS["flag_plain"].inputs)
    assert {a.where for a in run(pair, race=True).accesses} == {"race"}
    assert run(pair, race=False).accesses == ()


class Place(NamedTuple):
    """Memory of the log's tests."""

    low: int = 1 << 12
    high: int = (1 << 12) + 256


PLACE = Place()


def at(*elements: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return 4 * np.array(elements, np.int64)


def words(*values: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    return np.array(values, np.uint32)


class Log(RaceLog):
    """A log of accesses to words of one memory."""

    def loads(
        self, programs: Any, *elements: int, **named: Any
    ) -> list[tuple[int, int]]:
        addresses = (at(*elements) + PLACE.low).astype(np.uint64)
        mask = named.pop("mask", None)
        found = self.load(PLACE, programs, addresses, mask, 4, "l", **named)
        return [(r.program, r.other) for r in found]

    def stores(
        self, programs: Any, elements: list[int], new: list[int], old: list[int]
    ) -> list[tuple[int, int, str]]:
        given = at(*elements), words(*new), words(*old)
        found = self.store(PLACE, programs, *given, "s")
        return [(r.program, r.other, r.access) for r in found]

    def atomics(self, program: int, element: int, **named: Any) -> list[str]:
        found = self.atomic(PLACE, program, at(element), 4, "a", **named)
        return [r.access for r in found]


def test_a_store_races_with_the_loads_of_others_before_and_after_it() -> None:
    log = Log(3)
    assert log.loads(0, 5, 6) == []
    assert log.stores(1, [6, 7], [1, 1], [0, 0]) == [(1, 0, "load")]
    assert log.loads(2, 7, 8) == [(2, 1)]
    assert log.loads(1, 6, 7) == []


def test_programs_at_once_are_told_apart() -> None:
    programs = np.array([0, 0, 1, 1])
    log = Log(2)
    assert log.loads(programs, 0, 1, 2, 3) == []
    assert log.stores(programs, [0, 1, 2, 3], [1] * 4, [0] * 4) == []
    log = Log(2)
    assert log.loads(programs, 0, 1, 1, 2) == []
    assert log.stores(programs, [0, 9, 1, 2], [1] * 4, [0] * 4) == [(1, 0, "load")]
    log = Log(2)
    assert log.stores(programs, [0, 1, 1, 2], [1, 2, 2, 2], [0] * 4) == []
    log = Log(2)
    found = log.stores(programs, [0, 1, 1, 2], [1, 2, 3, 2], [0] * 4)
    assert found == [(1, 0, "store")]


def test_a_flag_that_a_store_raised_orders_who_reads_it() -> None:
    log = Log(3)
    log.stores(0, [0, 9], [1, 1], [0, 0])
    assert log.atomics(1, 9) == []
    assert log.loads(1, 0) == []
    assert log.atomics(2, 9, acquires=False) == ["store"]


def test_a_chain_of_flags_orders_the_last_after_the_first() -> None:
    log = Log(3)
    for program in range(3):
        log.ended()
        assert log.loads(program, 9, ordering=True) == []
        if program == 2:
            assert log.loads(2, 0, 1) == []
        log.stores(program, [program], [1], [0])
        assert log.stores(program, [9], [program + 1], [program]) == []


def test_masked_loads_and_stores_of_what_is_there_do_not_race() -> None:
    log = Log(2)
    log.loads(0, 0, 1, mask=np.array([True, False]))
    assert log.stores(1, [0, 1], [7, 8], [7, 0]) == []
    assert log.stores(0, [1], [8], [8]) == []
    assert log.loads(0, 1) == []  # what it stored itself, as another one did


def test_what_is_stored_before_a_release_is_ordered_for_who_acquires_it() -> None:
    for acquires, found in ((True, []), (False, [(1, 0)])):
        log = Log(2)
        log.stores(0, [0], [1], [0])
        log.atomics(0, 9)
        log.atomics(1, 9, acquires=acquires)
        assert log.loads(1, 0) == found
    log = Log(2)
    log.atomics(0, 9)
    log.stores(0, [0], [1], [0])  # after the flag
    log.atomics(1, 9)
    assert log.loads(1, 0) == [(1, 0)]


def test_a_volatile_load_orders_what_follows_it() -> None:
    for volatile, found in ((True, []), (False, [(1, 0)])):
        log = Log(2)
        log.stores(0, [0], [1], [0])
        log.stores(0, [9], [1], [0])
        log.loads(1, 9, ordering=volatile)
        assert log.loads(1, 0) == found


def test_atomics_race_with_plain_accesses_and_not_with_one_another() -> None:
    log = Log(3)
    assert log.atomics(0, 0, acquires=False) == []
    assert log.atomics(1, 0, acquires=False) == []
    assert log.stores(2, [0], [1], [0]) == [(2, 1, "atomic")]
    log = Log(3)
    log.loads(0, 0)
    assert log.atomics(1, 0) == ["load"]


def test_bytes_of_one_word_are_apart() -> None:
    log = Log(2)
    bytes_ = [np.array([n], np.uint8) for n in (0, 1, 2)]
    log.store(PLACE, 0, np.array([0]), bytes_[1], bytes_[0], "s")
    assert not log.store(PLACE, 1, np.array([1]), bytes_[1], bytes_[0], "s")
    assert log.store(PLACE, 1, np.array([0]), bytes_[2], bytes_[1], "s")
    assert log.loads(1, 0) == []
    assert log.loads(0, 0) == [(0, 1)]


def test_loads_beyond_what_is_held_back_are_entered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(races, "_MOST_PENDING", 2)
    log = Log(3)
    for element in range(6):
        log.loads(0, element)
    assert log.stores(1, [0, 5], [1, 1], [0, 0]) == [(1, 0, "load")]
