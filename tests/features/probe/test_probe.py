"""Probes on emulated arithmetic: what is there is said, and nothing else."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from kfuzz.features.lab.probe import orders as trees
from kfuzz.features.lab.probe.search import NAMES, readings
from kfuzz.features.lab.probe.sums import Outcome, Reading, rounded
from tests.helpers.emulated_adders import (
    H100_FP8,
    UNITS,
    Adder,
    Machine,
    compensated,
    drawn,
    pairwise,
    serial,
    split,
    strided,
    subject_of,
    tf32,
    truncated,
    unit,
)


def read(machine: Machine, *probes: str, terms: int = 64, **claims: object) -> Reading:
    """Return the last reading of the probes: that of the longest sums."""
    made = list(readings(subject_of(machine, terms=terms, **claims), probes or NAMES))
    return made[-1]


@pytest.mark.parametrize(
    ("add", "found", "height"),
    [
        (serial, "serial, height 63", 63),
        (pairwise, "balanced tree, height 6", 6),
        (strided, "2 parts of 32 (height 9), height 10", 10),
        (split, "4 parts of 16 (serial, height 15), height 18", 18),
    ],
)
def test_the_order_of_additions_is_found_and_gives_the_very_bits(
    add: Adder, found: str, height: int
) -> None:
    made = read(Machine(add), "order")
    assert made.found == f"{found}; its bits are those of additions in float32"
    assert made.tree is not None
    assert trees.height(made.tree) == height
    assert sorted(trees.leaves(made.tree)) == list(range(64))
    assert made.outcome is Outcome.AS_DECLARED


@pytest.mark.parametrize(
    ("name", "block", "bits", "dtype"),
    [
        ("V100", 4, 23, "float16"),
        ("A100", 8, 24, "bfloat16"),
        ("H100", 16, 25, "float16"),
        ("H100", 16, 25, "bfloat16"),
    ],
)
def test_published_matrix_units_are_recognised(
    name: str, block: int, bits: int, dtype: str
) -> None:
    machine = Machine(UNITS[name], "matmul", dtype)
    order = read(machine, "order", terms=32)
    assert f"up to {block + 1} terms at once" in order.found
    assert order.claims == {}, "such nodes do not round as a height counts"
    assert f"{bits} bits below" in read(machine, "alignment").found
    assert read(machine, "fused").found == "several at once, then truncated"
    assert read(machine, "accumulator").found == "at least 23 bits"


def test_the_8_bit_path_of_hopper_is_recognised() -> None:
    machine = Machine(H100_FP8, "scaled_matmul", "float8_e4m3fn", output="float32")
    claims = {"accumulator": "any_tensor_core"}
    assert "13 bits below" in read(machine, "alignment", **claims).found
    width = read(machine, "accumulator", **claims)
    assert width.found == "14 bits"
    assert width.outcome is Outcome.UNDECIDED, "it is another one on each unit"
    # Ada's blocks are of 16.
    blocks = replace(machine, add=partial(unit, block=16, fraction=13, kept=14))
    order = read(blocks, "order", terms=32, **claims)
    assert "up to 17 terms at once" in order.found


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_narrow_accumulator_differs_from_a_declared_float32(dtype: str) -> None:
    made = read(Machine(partial(serial, dtype=dtype), "sum", dtype), "accumulator")
    assert made.outcome is Outcome.DIFFERS
    assert made.witnesses
    assert f"as {dtype}" in made.found
    assert made.claims == {"accumulator": dtype}
    declared = read(
        Machine(partial(serial, dtype=dtype), "sum", dtype),
        "accumulator", accumulator=dtype,
    )  # fmt: skip
    assert declared.outcome is Outcome.AS_DECLARED
    wider = read(Machine(serial, "sum", dtype), "accumulator", accumulator=dtype)
    assert wider.outcome is Outcome.BETTER


@pytest.mark.parametrize(
    ("operand", "found"),
    [
        (tf32, "TF32, rounded"),
        (partial(tf32, cut=True), "TF32, truncated"),
        (partial(rounded, dtype="bfloat16"), "bfloat16"),
        (partial(rounded, dtype="float16"), "float16"),
        (lambda x: x, "float32"),
    ],
)
def test_the_format_of_operands(operand: Callable[[float], float], found: str) -> None:
    machine = Machine(serial, "matmul", operand=operand)
    made = read(machine, "operands")
    assert made.found == found
    differs = found != "float32"
    assert (made.outcome is Outcome.DIFFERS) == differs == bool(made.witnesses)
    if found.startswith("TF32"):
        declared = read(machine, "operands", accumulator="tf32")
        assert declared.outcome is Outcome.AS_DECLARED


def test_sums_that_are_none_are_said_to_be_none() -> None:
    def dropped(terms: Sequence[float]) -> float:
        return serial(terms[:-4]) if len(terms) > 4 else math.nan

    made = read(Machine(dropped), "accumulator")
    assert made.outcome is Outcome.DIFFERS
    assert "no sum of the terms" in made.found
    assert made.claims == {}
    nothing = Machine(lambda terms: math.nan)
    assert read(nothing, "operands").outcome is Outcome.UNDECIDED
    assert read(nothing, "order").outcome is Outcome.UNDECIDED


def test_what_tf32_rounds_away_is_not_flushed() -> None:
    machine = Machine(serial, "matmul", operand=tf32)
    made = read(machine, "subnormals", accumulator="tf32", subnormals="preserve")
    assert (made.found, made.outcome) == ("kept", Outcome.AS_DECLARED)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_flushed_subnormal_numbers(dtype: str) -> None:
    machine = Machine(serial, "matmul", dtype, flush=True)
    made = read(machine, "subnormals", subnormals="preserve")
    assert made.found == "flushed"
    assert made.outcome is Outcome.DIFFERS
    assert read(machine, "subnormals").outcome is Outcome.AS_DECLARED
    kept = read(Machine(serial, "matmul", dtype), "subnormals", subnormals="preserve")
    assert (kept.found, kept.outcome) == ("kept", Outcome.AS_DECLARED)


def test_how_results_are_stored() -> None:
    cut = Machine(serial, "sum", "bfloat16", store=partial(truncated, bits=8))
    made = read(cut, "store")
    assert (made.found, made.outcome) == ("towards zero", Outcome.DIFFERS)
    assert made.claims == {"store": "rz"}
    assert read(cut, "store", store="rz").outcome is Outcome.AS_DECLARED
    chance = Machine(serial, "sum", "bfloat16", store=drawn("bfloat16"))
    made = read(chance, "store")
    assert made.outcome is Outcome.DIFFERS
    assert "%" in made.found
    assert made.claims == {"store": "stochastic"}
    declared = read(chance, "store", store="stochastic", determinism="none")
    assert declared.outcome is Outcome.AS_DECLARED
    assert read(Machine(serial), "store").outcome is Outcome.NOT_APPLICABLE


def test_an_order_that_changes_is_no_order() -> None:
    machine = Machine(serial, reorder=True)
    made = read(machine, "order")
    assert made.outcome is Outcome.UNDECIDED
    assert "changes" in made.reason


def test_an_order_that_follows_the_number_of_rows_is_no_claim() -> None:
    machine = Machine(serial, by_rows=lambda rows: pairwise if rows <= 4 else serial)
    made = list(readings(subject_of(machine), ("order",)))
    assert "serial, height 15" in made[0].found
    assert made[0].found.endswith("; in calls of 4 rows balanced tree, height 4")
    assert not any(r.claims for r in made)


def test_compensated_sums_hide_their_order() -> None:
    machine = Machine(compensated)
    made = read(machine, "order")
    assert made.outcome is Outcome.BETTER
    assert "wider than any format" in made.found
    wide = Machine(partial(serial, dtype="float64"), dtype="float16")
    assert "or kept in float64" in read(wide, "order").found
    declared = read(machine, "order", accumulator="compensated")
    assert declared.outcome is Outcome.AS_DECLARED


def test_a_height_is_held_to_the_declared_one() -> None:
    for declared, outcome in (
        (18, Outcome.AS_DECLARED), (20, Outcome.BETTER), (9, Outcome.DIFFERS)
    ):  # fmt: skip
        made = read(Machine(split), "order", accumulator=f"blocked({declared})")
        assert made.outcome is outcome
        assert bool(made.witnesses) == (outcome is Outcome.DIFFERS)


def test_a_height_is_claimed_with_the_sizes_at_which_it_was_found() -> None:
    made = read(Machine(pairwise), "order", shape_class="N >= 4")
    assert made.claims == {
        "accumulator": "blocked(6)", "shape_class": "(N >= 4) and N <= 64"
    }  # fmt: skip
    for before in ("N <= 640", "N <= 64 or N == 4096"):
        made = read(Machine(pairwise), "order", shape_class=before)
        assert made.claims["shape_class"] == f"({before}) and N <= 64"
    assert read(Machine(serial), "order").claims == {}, "any order may be as high"
    single = Machine(pairwise, by_rows=lambda rows: serial if rows == 1 else pairwise)
    assert read(single, "order").claims == {}, "a row alone is added otherwise"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("product", ["sum", "matmul"])
@pytest.mark.parametrize("add", [serial, pairwise, split, UNITS["A100"]])
def test_nothing_differs_where_a_declaration_is_kept(
    add: Adder, product: str, dtype: str
) -> None:
    made = list(readings(subject_of(Machine(add, product, dtype), terms=16)))
    assert [r for r in made if r.outcome is Outcome.DIFFERS] == []
    assert {r.probe for r in made} == set(NAMES)
