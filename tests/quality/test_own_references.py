"""Kernels of `kfuzz.reference`: right ones stay without a finding, wrong ones do not.

KFUZZ_CASES=500 pytest -m "" tests/quality/test_own_references.py judges so many cases
of each right kernel.
"""

import os

import pytest

from kfuzz.core.budget import SizeBudget
from tests.helpers.batched import tallied
from tests.helpers.own import kernels
from tests.helpers.own.subject import Kernel
from tests.helpers.tiers import usual

CASES = int(os.environ.get("KFUZZ_CASES", "20"))
# Cases in which a fault has to show, and in which nearly all did.
FOUND = 600
EVERY = tuple(kernels())
SMALLEST = SizeBudget(256, 256)
# Of the references whose float64 run is short; the others wait for the night.
LONG = ("segment", "ragged", "decayed", "integer_scan")


def named(kernel: Kernel) -> str:
    return kernel.name.replace(" ", "_")


def each(*, right: bool) -> list[object]:
    """Return kernels as parameters; the push tier has the first of each reference."""
    seen: set[str] = set()
    made = []
    for kernel in EVERY:
        reference = kernel.name.partition(":")[0]
        if kernel.is_right is right:
            first = reference not in seen and not reference.startswith(LONG)
            made.append(usual(kernel, is_usual=first))
            seen.add(reference)
    return made


@pytest.mark.parametrize("kernel", each(right=True), ids=named)
def test_a_right_kernel_conforms(kernel: Kernel) -> None:
    made = tallied(kernel.bound, CASES, budget=SMALLEST)
    assert made.findings == {}
    assert made.errors == {}
    assert made.counts["cases"] == CASES
    assert made.counts["decided"] > 0.7 * CASES


@pytest.mark.slow
@pytest.mark.parametrize("kernel", each(right=False), ids=named)
def test_a_wrong_kernel_is_found(kernel: Kernel) -> None:
    made = tallied(kernel.bound, FOUND, budget=SMALLEST, explained=0, stops=True)
    assert made.findings
    assert made.errors == {}
