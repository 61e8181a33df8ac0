"""What is admitted for reasons that are cheap to see is what is admitted."""

import random
from dataclasses import replace

import pytest
import torch

from kfuzz.numerics.compare import Outcome, compare, outcomes_of
from kfuzz.numerics.formats import FORMATS
from tests.helpers.acceptances import within_one

STEPS = (-2.0, -1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 2.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float64"])
def test_the_short_way_gives_the_outcome_of_the_long_one(name: str) -> None:
    fmt, draw = FORMATS[name], random.Random(7)
    dtype, both = fmt.dtype, set()
    ends = [0.0, fmt.max_finite, fmt.min_normal, fmt.min_subnormal, float("nan")]
    ends += [float("inf"), 1.0, 2.0, 3.0, 1.5 * fmt.min_subnormal]
    for _ in range(3000):
        start = draw.choice([*ends, draw.uniform(-4, 4), 10 ** draw.uniform(-40, 6)])
        start *= draw.choice((1, -1))
        middle = float(torch.tensor(start, dtype=torch.float64).to(dtype))
        ulp = max(abs(middle), fmt.min_normal) * 2 * fmt.unit
        if middle and abs(middle) < float("inf"):
            ulp = 2.0 ** (torch.tensor(abs(middle)).double().log2().floor().item())
            ulp = max(ulp * 2 * fmt.unit, fmt.min_subnormal)
        near = middle + draw.choice(STEPS) * ulp
        y = torch.tensor([[near]], dtype=torch.float64).to(dtype)
        reference = torch.tensor([[middle + draw.choice(STEPS) * ulp]]).double()
        wide = [draw.choice(STEPS[5:]) * ulp for _ in range(2)]
        a = within_one(reference[0])
        a = replace(
            a, reference=reference, low=reference - wide[0], high=reference + wide[1],
            output=fmt, store=draw.choice(("rne", "rne", "stochastic", "rz")),
            flush=draw.random() < 0.2, flushed=draw.random() < 0.2,
            signed_zeros=draw.random() < 0.1,
        )  # fmt: skip
        made = compare(y, a)
        wanted = outcomes_of(y, y.double(), a)
        assert torch.equal(made.outcomes, wanted), (y, a)
        both.add(int(wanted))
    assert {Outcome.OK, Outcome.VALUE} <= both


def test_what_cannot_be_decided_is_not_plain() -> None:
    y = torch.zeros(1, 2)
    a = within_one(y[0])
    a = replace(a, output=FORMATS["float32"], undecided=torch.tensor([[True, False]]))
    assert compare(y, a).outcomes.tolist() == [[Outcome.UNDECIDED, Outcome.OK]]
