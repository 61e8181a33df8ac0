"""A 32-bit offset overflow is named by its product; who declares them is spared."""

from dataclasses import replace
from typing import Any

import pytest

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.roster import everywhere
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import Access, Failure, Kind, State
from kfuzz.engine.explain import offset_lines
from kfuzz.strategies.layouts import layout_name
from tests.helpers.findings import finding
from tests.helpers.in_process import (
    InProcess,
    drawn,
    first_failing,
    taken_to_minimum,
)
from tests.helpers.judged_cases import COUNTER

FAR = 2**30 + 1
CAST = "i.to(tl.int64) * stride"


def view(strides: tuple[int, int]) -> TensorSpec:
    return TensorSpec((3, 2), ("M", "N"), "float32", strides, values=bytes(24))


def access(offset: int) -> Failure:
    found = Access("load", "x", "x", "before", -offset, offset, program=(2, 0, 0))
    message = f"reads {-offset} elements before the start of x"
    return Failure(
        "K-MEM-01", Kind.READ_OUTSIDE, message, output="x", accesses=(found,)
    )


@pytest.mark.parametrize(
    ("strides", "offset", "product"),
    [
        (
            (FAR, 1), -(2**31) + 2,
            "2 * 1,073,741,825 = 2,147,483,650 (index * stride of M)",
        ),
        (
            (1, 2**31), -(2**31),
            "1 * 2,147,483,648 = 2,147,483,648 (index * stride of N)",
        ),
    ],
)  # fmt: skip
def test_the_product_that_overflows_is_named_with_its_cast(
    strides: tuple[int, int], offset: int, product: str
) -> None:
    case = Case({"x": view(strides)})
    lines = offset_lines(finding(case=case, failure=access(offset)), apart=False)
    assert product in lines[0]
    assert f"becomes {offset:,}" in lines[0]
    assert CAST in lines[1]
    assert 'offsets="int32"' in lines[2]


def test_a_kernel_that_overflows_is_explained_so() -> None:
    witness = everywhere()["relu_offsets_overflow"]
    runner = InProcess(witness.load(), budget="interpret")
    cases = drawn(runner.loaded.kernel, 400, budget="interpret")
    huge = [c for c in cases if layout_name(c.lead) == "huge"]
    found = first_failing(runner, huge)
    assert found is not None
    made = taken_to_minimum(runner, *found)
    assert made.state is State.CONFIRMED
    assert made.explanation is not None
    assert "32-bit offset overflow in x: 2 * 1,07" in made.explanation.lines[0]


@pytest.mark.parametrize("offsets", ["int64", "int32"])
def test_who_declares_32_bit_offsets_gets_no_wider_view(offsets: Any) -> None:
    bound = kernel(ops.relu, name=f"k{next(COUNTER)}", offsets=offsets)(lambda x: x)
    cases = drawn(bound, 300)  # type: ignore[arg-type]
    wide = [c for c in cases if any(s.span > 2**31 for s in c.tensors.values())]
    assert bool(wide) == (offsets == "int64")
    far = Case({"x": replace(view((FAR, 1)), axes=("d0", "d1"))})
    claims = bound.declaration  # type: ignore[attr-defined]
    assert ops.relu.accepts(far, claims) == (offsets == "int64")
