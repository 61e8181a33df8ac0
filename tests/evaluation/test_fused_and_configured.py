"""C-CMP-01 and C-CMP-02: chains of operators, and configurations of a kernel."""

from functools import partial

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.classes import CLASSES
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Kind, Verdict
from tests.helpers import judged_cases
from tests.helpers.judged_cases import spec

judged = partial(judged_cases.judged, classes=CLASSES)


def gated(dtype: str = "float32", family: str = "randn") -> Case:
    gate, up = (spec(family, (3, 17), dtype, seed=seed) for seed in (2, 4))
    return Case({"gate": gate, "up": up})


# Chains -----------------------------------------------------------------------


def test_a_part_that_is_left_out_is_charged_to_the_chain() -> None:
    def without_silu(gate: Tensor, up: Tensor) -> Tensor:
        return gate * up

    report = judged(ops.swiglu, without_silu, gated())
    assert report.failure is not None
    assert report.failure.contract == "C-CMP-01"
    assert report.failure.kind is Kind.VALUE
    assert "silu, mul" in report.failure.message


def test_what_the_stored_chain_gives_is_a_matter_of_precision() -> None:
    def chained(gate: Tensor, up: Tensor) -> Tensor:
        return torch.nn.functional.silu(gate) * up

    case = gated("bfloat16")
    report = judged(ops.swiglu, chained, case)
    assert report.failure is not None
    assert report.failure.contract == "C-PRC-01"
    report = judged(ops.swiglu, chained, case, intermediates="output")
    assert report.failure is None
    assert report.verdicts["C-CMP-01"] is Verdict.CONFORMS


# Configurations ---------------------------------------------------------------

CONFIGS = ({"block": 4}, {"block": 8}, {"block": 16, "tail": False})


def blocked(x: Tensor, *, block: int, tail: bool = True) -> Tensor:
    """Rectify block by block; without its tail the rest keeps its sign."""
    flat = x.reshape(-1).clone()
    n = flat.numel() if tail else flat.numel() // block * block
    flat[:n] = torch.relu(flat[:n])
    return flat.reshape(x.shape)


def numbered(number: int, shape: tuple[int, ...] = (5, 5)) -> Case:
    return Case({"x": spec("negative", shape)}, config=number)


def test_the_faulty_configuration_is_named_and_one_that_is_right() -> None:
    report = judged(ops.relu, blocked, numbered(2), configs=CONFIGS)
    assert report.failure is not None
    assert report.failure.contract == "C-CMP-02"
    assert report.failure.kind is Kind.VALUE
    told = report.failure.message
    assert "with block=16, tail=False; with block=4 the result is correct" in told


@pytest.mark.parametrize("number", [0, 1, 3, 4])
def test_a_case_runs_the_configuration_of_its_number(number: int) -> None:
    seen: list[int] = []

    def noting(x: Tensor, *, block: int, tail: bool = True) -> Tensor:
        seen.append(block)
        return blocked(x, block=block, tail=tail)

    report = judged(ops.relu, noting, numbered(number), configs=CONFIGS)
    assert set(seen) == {CONFIGS[number % 3]["block"]}
    assert report.failure is None
    assert report.verdicts["C-CMP-02"] is Verdict.CONFORMS


def test_what_every_configuration_gets_wrong_is_no_matter_of_them() -> None:
    def wrong(x: Tensor, *, block: int) -> Tensor:
        return x + block

    report = judged(ops.relu, wrong, numbered(0), configs=CONFIGS[:2])
    assert report.failure is not None
    assert report.failure.contract == "K-VAL-01"
