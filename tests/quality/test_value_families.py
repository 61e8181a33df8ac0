"""Each family of values finds the fault that it is for, in a bounded number of cases.

Most cases until the first finding with seeds 1 to 3, of them as many without the family
as beside it, "-" for none in 2,000.
"""

from pathlib import Path

import pytest

from tests.helpers.tiers import usual
from tests.quality.hunting import cases_until_found

SEED = 1
BOUNDS = {
    # far_rows
    "logsumexp_starts_from_a_number": 400,
    # mixed_rows
    "sum_samples_half_of_the_rows": 800,
    # far_rows and scaled, half a minute and more each
    "attention_hides_by_a_number": 1500,
    "attention_rounds_scaled_queries": 1000,
}


@pytest.mark.parametrize(
    "name",
    [usual(n, is_usual=not n.startswith("attention")) for n in BOUNDS],
)
def test_a_fault_is_found(name: str, tmp_path: Path) -> None:
    found = cases_until_found(
        f"family_kernels:{name}", tmp_path, seed=SEED, cases=BOUNDS[name]
    )
    assert found <= BOUNDS[name]


def test_the_correct_kernel_beside_them_has_no_finding(tmp_path: Path) -> None:
    found = cases_until_found(
        "family_kernels:attention_rounds_once", tmp_path, seed=SEED, cases=150
    )
    assert found == float("inf")
