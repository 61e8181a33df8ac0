"""What is said that a minimum needs, and what is not."""

import math
from collections.abc import Callable

from kfuzz.core.dtypes import number_to_bits, pack_bits
from kfuzz.core.finding import Explanation
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import Feature
from kfuzz.engine.explain import Outcome, explain
from kfuzz.engine.reduce import numbers

Kernel = Callable[[Case], Outcome]


def pinned(values: list[float], **sizes: int) -> TensorSpec:
    patterns = [number_to_bits(v, "float32") for v in values]
    data = pack_bits(patterns, "float32")
    shape = tuple(sizes.values())
    return TensorSpec(shape, tuple(sizes), "float32", values=data)


def explained(
    case: Case, kernel: Kernel, *, gone: bool = False, dtypes: str = "float32"
) -> Explanation:
    friendly = "gone" if gone else None
    found = tuple(dtypes.split())
    return explain(case, kernel, dtypes=found, friendly=friendly, deadline=math.inf)


def test_what_fails_otherwise_without_a_value_does_not_need_it() -> None:
    """Wrong about NaN there, wrong in value elsewhere: NaN is not why."""
    case = Case({"x": pinned([math.nan, 2.0], N=2)})

    def kernel(case: Case) -> Outcome:
        met = any(map(math.isnan, numbers(case.lead)))
        return Outcome.FAILS if met else Outcome.OTHERWISE

    told = explained(case, kernel)
    assert told.features == ()
    assert told.lines == ("fails, but in another way, without NaN",)


def test_an_infinity_is_replaced_by_a_number_of_its_sign() -> None:
    case = Case({"x": pinned([-math.inf, math.inf, 3.0], N=3)})
    seen = []

    def kernel(case: Case) -> Outcome:
        seen.append(numbers(case.lead))
        return Outcome.PASSES

    told = explained(case, kernel)
    assert seen[0] == [-1.0, 1.0, 3.0]
    assert told.features == (Feature.INF,)
    assert told.lines == ("passes without infinities",)


def test_a_square_is_no_tail() -> None:
    """A kernel that transposes where the weight is square, at its least size."""
    weight = pinned([0.0, 0.0, 1.0, 0.0], N=2, K=2)
    case = Case({"x": pinned([0.0, 1.0], K=2), "weight": weight})

    def kernel(case: Case) -> Outcome:
        square = case.dims["N"] == case.dims["K"]
        return Outcome.FAILS if square else Outcome.PASSES

    told = explained(case, kernel, gone=True)
    assert told.features == ()
    [line] = told.lines
    assert line.startswith("passes at x [16], weight [2, 16] and x [18], weight ")
    assert line.endswith("; fails at x [2], weight [2, 2]")


def test_a_tail_is_what_fails_again_with_the_same_rest() -> None:
    """A kernel in tiles of 256 that leaves its last one out."""
    case = Case({"x": pinned([0.0] * 256 + [1.0], N=257)})

    def kernel(case: Case) -> Outcome:
        n = case.dims["N"]
        lost = numbers(case.lead)[n - n % 256 :]
        return Outcome.FAILS if any(lost) else Outcome.PASSES

    told = explained(case, kernel, gone=True)
    assert told.features == (Feature.TAIL,)
    assert told.lines == ("passes at x [512]; fails at x [257] and x [769]",)
