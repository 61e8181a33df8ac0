"""What is raised for a size alone is a limit; what is raised otherwise a failure."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.core.verdict import CaseReport, Kind, Verdict
from kfuzz.engine.search.record import Refusals
from tests.helpers.judged_cases import judged, row_case

Wrong = Callable[[Tensor], bool]


def softmax(wrong: Wrong, error: type[Exception]) -> Callable[..., Tensor]:
    def checked(x: Tensor, dim: int) -> Tensor:
        if wrong(x):
            raise error(f"n = {x.shape[-1]} cannot be taken")
        return torch.softmax(x, dim)

    return checked


def on(
    n: int, wrong: Wrong, error: type[Exception] = ValueError, **claims: Any
) -> CaseReport:
    function = softmax(wrong, error)
    return judged(ops.softmax, function, row_case("randn", (4, n)), **claims)


@pytest.mark.parametrize(
    ("n", "wrong", "error", "text", "keeps"),
    [
        (
            2000, lambda x: x.shape[-1] > 1024, RuntimeError,
            "N above 1,024", "N <= 1024",
        ),
        (73, lambda x: x.shape[-1] > 64, AssertionError, "N above 64", "N <= 64"),
        (201, lambda x: x.shape[-1] > 200, RuntimeError, "N above 200", "N <= 200"),
        (33, lambda x: x.shape[-1] > 16, IndexError, "N above 16", "N <= 16"),
        (7, lambda x: x.shape[-1] < 16, AssertionError, "N below 16", "N >= 16"),
        (
            2000, lambda x: x.numel() > 4096, RuntimeError,
            "M * N above 4,096", "M * N <= 4096",
        ),
        (
            2064, lambda x: x.shape[-1] > 1024 or x.shape[-1] % 16, IndexError,
            "N above 1,024", "N <= 1024",
        ),
        (
            33, lambda x: x.shape[-1] % 2, IndexError,
            "N that is no multiple of 2", "N % 2 == 0",
        ),
        (
            24, lambda x: x.shape[-1] % 16, AssertionError,
            "N that is no multiple of 16", "N % 16 == 0",
        ),
    ],
)  # fmt: skip
def test_a_size_that_is_rejected_is_a_limit(
    n: int, wrong: Wrong, error: type[Exception], text: str, keeps: str
) -> None:
    report = on(n, wrong, error)
    assert report.failure is None
    assert Verdict.VIOLATES not in report.verdicts.values()
    assert (report.refusal, report.limit) == (text, (text, f'shape_class="{keeps}"'))
    refusals = Refusals(("float32",))
    refusals.take(report)
    [told] = refusals.told(("float32",))
    assert (told.reason, told.remedy) == (text, f'shape_class="{keeps}"')
    assert told.example == f"n = {n} cannot be taken"
    inside = on(n, wrong, error, shape_class="N >= 1")
    assert inside.failure is not None  # who declares sizes promises them
    assert (inside.failure.contract, inside.failure.kind) == ("K-LIV-01", Kind.RAISES)


STAYS: list[tuple[int, Wrong, type[Exception]]] = [
    (7, lambda x: x.shape[-1] == 7, ValueError),
    (33, lambda x: True, ValueError),
    (33, lambda x: x.shape[-1] > 3, ValueError),
    (33, lambda x: x.shape[-1] in (33, 34, 44, 49), IndexError),
    (33, lambda x: 32 < x.shape[-1] < 60, ValueError),
    (1, lambda x: x.shape[-1] == 1, IndexError),
    (600, lambda x: x.shape[-1] > 256 and x.shape[0] == 4, ValueError),
    (600, lambda x: x.shape[-1] > 256 and bool(x.any()), ValueError),
    (600, lambda x: x.shape[-1] in (5, 600), ValueError),
]


@pytest.mark.parametrize(("n", "wrong", "error"), STAYS)
def test_what_is_raised_at_ordinary_sizes_or_for_values_stays_a_failure(
    n: int, wrong: Wrong, error: type[Exception]
) -> None:
    report = on(n, wrong, error)
    assert report.failure is not None
    assert (report.failure.contract, report.failure.kind) == ("K-LIV-01", Kind.RAISES)
