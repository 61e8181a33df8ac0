"""What is said that a minimum needs, and what is not."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kfuzz.core.declaration import ShapeClass
from kfuzz.core.dtypes import number_to_bits, pack_bits
from kfuzz.core.finding import Explanation
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import Feature
from kfuzz.engine.explain import Outcome, explain, numbers_of
from kfuzz.engine.reduce import numbers

Kernel = Callable[[Case], Outcome]


def pinned(values: list[float], **sizes: int) -> TensorSpec:
    patterns = [number_to_bits(v, "float32") for v in values]
    data = pack_bits(patterns, "float32")
    shape = tuple(sizes.values())
    return TensorSpec(shape, tuple(sizes), "float32", values=data)


def explained(case: Case, kernel: Kernel, **given: Any) -> Explanation:
    return explain(case, kernel, dtypes=("float32",), deadline=math.inf, **given)


def of_sizes(fails: Callable[[dict[str, int]], bool]) -> Kernel:
    """Return a kernel that fails at some sizes and scalars, whatever the values."""
    return lambda case: Outcome.FAILS if fails(numbers_of(case)) else Outcome.PASSES


def test_what_fails_otherwise_without_a_value_does_not_need_it() -> None:
    """Wrong about NaN there, wrong in value elsewhere: NaN is not why."""
    case = Case({"x": pinned([math.nan, 2.0], N=2)})

    def kernel(case: Case) -> Outcome:
        met = any(map(math.isnan, numbers(case.lead)))
        return Outcome.FAILS if met else Outcome.OTHERWISE

    told = explained(case, kernel)
    assert told.features == ()
    assert told.lines[-1] == "fails, but in another way, without NaN"
    assert not any(line.startswith("passes") for line in told.lines)


def test_an_infinity_is_replaced_by_a_number_of_its_sign() -> None:
    case = Case({"x": pinned([-math.inf, math.inf, 3.0], N=3)})
    seen = []

    def kernel(case: Case) -> Outcome:
        seen.append(numbers(case.lead).tolist())
        return Outcome.PASSES

    told = explained(case, kernel)
    assert [-1.0, 1.0, 3.0] in seen
    assert told.features == (Feature.INF,)
    assert "passes without infinities" in told.lines


def test_the_least_subnormal_number_is_scaled_too() -> None:
    """2^1074, by which it is about 1, is no float."""
    least = TensorSpec((1,), ("N",), "float64", values=pack_bits([1], "float64"))
    case = Case({"x": least})

    def kernel(case: Case) -> Outcome:
        return Outcome.FAILS if 0 < max(numbers(case.lead)) < 1 else Outcome.PASSES

    told = explain(case, kernel, dtypes=("float64",), deadline=math.inf)
    assert Feature.MAGNITUDE in told.features
    assert "passes with the values scaled to about 1" in told.lines


def test_a_square_is_no_tail() -> None:
    """A kernel that transposes where the weight is square, at its least size."""
    weight = pinned([0.0, 0.0, 1.0, 0.0], N=2, K=2)
    case = Case({"x": pinned([0.0, 1.0], K=2), "weight": weight})

    def kernel(case: Case) -> Outcome:
        square = case.dims["N"] == case.dims["K"]
        return Outcome.FAILS if square else Outcome.PASSES

    told = explained(case, kernel)
    assert told.features == ()
    assert told.lines[0].startswith("fails where K = N: passes at ")


def test_a_tail_is_what_fails_again_with_the_same_rest() -> None:
    """A kernel in tiles of 256 that leaves its last one out."""
    case = Case({"x": pinned([0.0] * 256 + [1.0], N=257)})

    def kernel(case: Case) -> Outcome:
        n = case.dims["N"]
        lost = numbers(case.lead)[n - n % 256 :]
        return Outcome.FAILS if any(lost) else Outcome.PASSES

    told = explained(case, kernel)
    assert told.features == (Feature.TAIL,)
    line, declared = told.lines
    assert line.startswith("fails where N is no multiple of 256: passes at x [256]; ")
    assert 'declare shape_class="N % 256 == 0" if' in declared


@pytest.mark.parametrize(
    ("sizes", "fails", "words"),
    [
        # Head h of H reads group h % G.
        ({"H": 4, "G": 2}, lambda n: 1 < n["G"] < n["H"], "1 < G < H"),
        ({"S": 1, "W": 2}, lambda n: n["S"] < n["W"], "S < W"),
        ({"B": 2, "N": 1}, lambda n: n["B"] > 1, "B > 1"),
        ({"M": 2, "N": 2}, lambda n: n["M"] > 1 < n["N"], "M > 1 and N > 1"),
        ({"M": 1, "N": 2}, lambda n: n["M"] != n["N"], "M and N differ"),
        ({"M": 2, "N": 3}, lambda n: n["N"] % n["M"] > 0, "N is no multiple of M"),
    ],
)
def test_a_relation_between_sizes_is_found(
    sizes: dict[str, int], fails: Callable[[dict[str, int]], bool], words: str
) -> None:
    case = Case({"x": pinned([1.0] * math.prod(sizes.values()), **sizes)})
    told = explained(case, of_sizes(fails))
    assert told.lines[0].startswith(f"fails where {words}: passes at x ["), told.lines


def test_a_size_that_another_follows_from_is_varied_with_it() -> None:
    """D alone is no shape of the operator's: E is its half. E = S holds of others."""
    x, table = pinned([1.0] * 2, B=1, S=1, D=2), pinned([1.0], S=1, E=1)
    case = Case({"x": x, "table": table})
    related = ShapeClass.parse("E == D // 2 and D % 2 == 0", where="")

    def kernel(case: Case) -> Outcome:
        if not related.accepts(case.dims):
            return Outcome.UNKNOWN
        wrong = case.dims["S"] == 1 == case.dims["E"]
        return Outcome.FAILS if wrong else Outcome.PASSES

    told = explained(
        case, kernel, exact=True,
        settled=lambda sizes, case: related.settled(sizes, {}),
    )  # fmt: skip
    assert told.lines[0].startswith("fails where E <= S and S < 2: "), told.lines


@pytest.mark.parametrize(
    "fails",
    [
        lambda n: (n["M"] + n["N"]) % 2 > 0,
        lambda n: n["M"] * n["N"] % 8 > 0,
        lambda n: n["M"] * n["N"] < 30,
    ],
)
def test_what_no_condition_fits_gets_none(
    fails: Callable[[dict[str, int]], bool],
) -> None:
    case = Case({"x": pinned([1.0] * 2, M=2, N=1)})
    assert explained(case, of_sizes(fails)).lines == ()
    # What no rounding decides shows at which sizes it passes all the same.
    [line] = explained(case, of_sizes(fails), exact=True).lines
    assert line.startswith("passes at x [")


def test_what_three_numbers_at_once_refute_is_no_condition() -> None:
    """A race from two results on, of M rows that give k of their N each."""
    case = Case({"x": pinned([1.0] * 2, M=2, N=1)}, {"k": 1})
    kernel = of_sizes(lambda n: n["M"] * min(n["k"], n["N"]) > 1)
    told = explained(case, kernel, scalars={"k": (0, 1, 2, 8)})
    assert not any(line.startswith("fails where") for line in told.lines), told.lines


def test_scalars_are_varied_alone_and_with_one_another() -> None:
    case = Case({"x": pinned([1.0], N=1)}, {"padding": 1, "dilation": 2, "mode": "a"})
    kernel = of_sizes(lambda n: n["padding"] > 0 and n["dilation"] > 1)
    values = {"padding": (0, 1), "dilation": (1, 2, 3), "mode": ("a", "b")}
    told = explained(case, kernel, scalars=values)
    assert "fails where padding > 0 and dilation > 1: " in told.lines[0]
    assert "with dilation = 3, with mode = b" in told.lines[-1]


def test_an_eps_that_shows_beside_small_numbers_is_no_cause() -> None:
    """One that is added to the root: of 1 only a great eps shows."""
    case = Case({"x": pinned([1.0], N=1)}, {"eps": 1e-3})

    def kernel(case: Case) -> Outcome:
        x, eps = float(numbers(case.lead).min()), case.scalars["eps"]
        right = x / math.sqrt(x * x + eps)
        wrong = abs(right - x / (abs(x) + eps)) > 1e-6 * abs(right)
        return Outcome.FAILS if wrong else Outcome.PASSES

    told = explained(case, kernel, scalars={"eps": (1e-3, 1e-6)})
    assert not any(line.startswith("passes") for line in told.lines), told.lines
    # As found it is subnormal; in its place comes 0, for which nothing shows.
    case = Case({"x": pinned([2.0**-130], N=1)}, {"eps": 2.0**-40})
    told = explained(case, kernel)
    assert Feature.SUBNORMAL not in told.features


def test_a_seed_that_spares_few_elements_is_no_cause() -> None:
    """Dropout that does not scale: of three elements another seed drops the one."""
    case = Case({"x": pinned([0.0, 0.0, 1.0], N=3)}, {"p": 0.5, "seed": 2})

    def kernel(case: Case) -> Outcome:
        x = numbers(case.lead)
        kept = np.random.default_rng(case.scalars["seed"]).random(x.size) < 0.3
        wrong = case.scalars["p"] > 0 and bool((x * kept).any())
        return Outcome.FAILS if wrong else Outcome.PASSES

    values = {"p": (0.0, 0.5), "seed": (0, 1, 3, 4, 5)}
    told = explained(case, kernel, scalars=values)
    assert "passes with p = 0.0" in told.lines
    assert not any("passes with seed" in line for line in told.lines), told.lines


def test_no_cause_is_named_that_a_case_refutes() -> None:
    """The minimum passes without its zero; that as found had none."""
    case = Case({"x": pinned([0.0], N=1)})

    def kernel(case: Case) -> Outcome:
        wrong = [n for n in numbers(case.lead) if n in (0.0, 5.0)]
        return Outcome.FAILS if wrong else Outcome.PASSES

    assert "passes without zeros" in explained(case, kernel).lines
    first = Case({"x": pinned([5.0, 1.0], N=2)})
    told = explained(case, kernel, failing=[first])
    assert not any(line.startswith("passes") for line in told.lines)


def test_one_size_of_which_smaller_ones_fail_is_no_threshold() -> None:
    case = Case({"x": pinned([1.0] * 200, N=200)})
    kernel = of_sizes(lambda n: n["N"] >= 200)
    assert explained(case, kernel).lines[0] == "fails from N = 200 on, passes at 199"
    first = Case({"x": pinned([1.0] * 64, N=64)})
    told = explained(case, kernel, failing=[first])
    assert not any(line.startswith("fails from") for line in told.lines)


def test_a_number_of_elements_may_decide_whatever_their_dimensions() -> None:
    case = Case({"x": pinned([1.0] * 200, M=1, N=200)})
    kernel = of_sizes(lambda n: n["M"] * n["N"] >= 200)
    told = explained(case, kernel)  # as where none that failed has a shorter row
    assert told.lines[0] == "fails from 200 elements on, passes at 199"
    in_rows = of_sizes(lambda n: n["N"] >= 200)
    assert "from N = 200 on" in explained(case, in_rows).lines[0]
    first = Case({"x": pinned([1.0] * 240, M=4, N=60)})
    told = explained(case, kernel, failing=[first])
    assert told.lines[0] == "fails from 200 elements on, passes at 199"
    first = Case({"x": pinned([1.0] * 180, M=3, N=60)})
    told = explained(case, kernel, failing=[first])
    assert not any(line.startswith("fails from") for line in told.lines)
