from typing import Final

import pytest
import torch

from tests.helpers.impostors import (
    DTYPES,
    case_of,
    pose_case,
)
from tests.helpers.subjects.elementwise import (
    SINGLE,
    SUBJECTS,
)

SPECIAL: Final = ("nan1", "inf1", "infmix", "signed_zeros", "subnormal", "nearmax")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["add", "mul", "swiglu", "geglu"])
def test_specials_in_the_second_operand_are_admitted(name: str, dtype: str) -> None:
    subject = SUBJECTS[name]
    for family in SPECIAL:
        for first in ("big_logits", "signed_zeros", "infmix", "minnormal"):
            case = pose_case(
                subject,
                case_of(subject, dtype, first, subject.setups[0], other=family),
            )
            for label, algorithm in subject.correct.items():
                assert not case.refuses(case.run(algorithm)), f"{label}: {case}"


@pytest.mark.parametrize("name", [n for n in SUBJECTS if n not in SINGLE])
@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
def test_a_run_in_half_precision_lies_within_that_precision(
    name: str, narrow: str
) -> None:
    """What lets a miss on float32 data be charged to a narrower arithmetic."""
    subject = SUBJECTS[name]
    claims = {"algorithm": "exp_form"} if name == "tanh" else {}
    assert subject.half is not None
    for family in ("randn", "uniform01", "exact_int"):
        made = case_of(subject, "float32", family, subject.ordinary)
        case = pose_case(subject, made, accumulator=narrow, **claims)
        dtype = getattr(torch, narrow)
        values = [v.to(dtype) for v in case.values.values()]
        y = subject.half(*values, **case.problem.scalars).float()
        assert not case.refuses({"y": y}), str(case)
