from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.oracle import accept, compare_all, pose_members
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.execution.interpreter.watch import interpreting
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.compare import (
    Comparison,
    Outcome,
    Summary,
    compare_members,
    fused,
    reduced,
    summarise,
)
from tests.helpers.judged_values import flags, judged


def check_member(found: Summary, made: Comparison, member: int) -> None:
    """A member's summary is what its own comparison says."""
    outcomes = made.outcomes
    assert int(found.worst[member]) == (int(outcomes.max()) if outcomes.numel() else 0)
    assert int(found.missed[member]) == int(made.missed.sum())
    undecided = int((outcomes == Outcome.UNDECIDED).sum())
    assert int(found.undecided[member]) == undecided
    ratio = float(made.ratio.max()) if outcomes.numel() else 0.0
    assert float(found.ratio[member]) == ratio


def case_of(name: str, **shapes: tuple[int, ...]) -> Case:
    operator = getattr(ops, name)
    tensors = {}
    for argument, shape in shapes.items():
        axes = tuple(f"d{i}" for i in range(len(shape)))
        tensors[argument] = TensorSpec(shape, axes, "float32", fill=Fill("randn"))
    scalars = {n: operator.default_of(n) for n in operator.scalars}
    return Case(tensors, scalars)


SUBJECTS = [
    ("softmax", (5, 7)),
    ("relu", ()),
    ("relu", (0, 3)),
    ("sum", (4,)),
    ("argmax", (5, 7)),
    ("topk", (5, 7)),
    ("sort", (5, 7)),
    ("quantize_int8", (3, 9)),
    ("quantize_fp8", (3, 9)),
]


@pytest.mark.parametrize(("name", "shape"), SUBJECTS)
def test_a_summary_is_what_each_member_would_have_alone(
    name: str, shape: tuple[int, ...]
) -> None:
    operator, members = getattr(ops, name), 6
    case = case_of(name, x=shape)
    generator = torch.Generator().manual_seed(5)
    x = torch.randn((members, *shape), generator=generator).round(decimals=1)
    if x[0].numel() > 1:
        x[1, ..., 0], x[2, ..., -1] = float("nan"), float("inf")
    claims = operator.defaults
    accepted = accept(operator, pose_members(operator, case, {"x": x}, claims))
    # The results of member 0 for all: some elements are right, some are not.
    outputs = {}
    for output, a in accepted.items():
        first = a.reference[:1].nan_to_num(0.0, 0.0, 0.0)
        outputs[output] = first.expand_as(a.reference).to(a.output.dtype).contiguous()
    found = summarise(outputs, accepted)
    assert set(found) == set(operator.outputs)
    for i in range(members):
        problem = pose_members(operator, case, {"x": x[i : i + 1]}, claims)
        alone = compare_all(
            {n: y[i] for n, y in outputs.items()}, accept(operator, problem)
        )
        for output, made in alone.items():
            check_member(found[output], made, i)
    if x.numel():
        assert not any(int(s.missed[0]) for s in found.values())
        assert sum(int(s.missed.sum()) for s in found.values())


def check_equal(found: Summary, wanted: Summary, where: object) -> None:
    for field in ("worst", "missed", "undecided", "ratio"):
        ours, theirs = getattr(found, field), getattr(wanted, field)
        assert ours.dtype == theirs.dtype, field
        same = (ours == theirs) | ((ours != ours) & (theirs != theirs))
        assert bool(same.all()), f"{where}: {field} {ours} instead of {theirs}"


interpreted = pytest.mark.skipif(not interpreting(), reason="Triton compiles here")


def by_kernel(y: Tensor, acceptance: Acceptance, mask: Tensor | None) -> Summary:
    pytest.importorskip("triton")
    with np.errstate(all="ignore"):  # float64 may overflow, as it does in torch
        return fused(y, acceptance, mask)


@interpreted
@pytest.mark.parametrize("combination", list(flags()), ids=str)
def test_the_kernel_gives_what_the_comparator_gives(combination: Any) -> None:
    y, acceptance, mask = judged((2, 13, 31), *combination, seed=3)
    wanted = reduced(compare_members({"y": y}, {"y": acceptance})["y"])
    found = by_kernel(y, acceptance, mask)
    check_equal(found, wanted, combination)
    assert bool((wanted.missed > 0).all())


@interpreted
def test_the_kernel_covers_members_longer_than_a_block() -> None:
    combination = next(flags())
    y, acceptance, mask = judged((2, 1291), *combination, seed=4)
    wanted = reduced(compare_members({"y": y}, {"y": acceptance})["y"])
    check_equal(by_kernel(y, acceptance, mask), wanted, combination)


@interpreted
def test_the_kernel_reads_results_and_bounds_of_any_strides() -> None:
    y, acceptance, _ = judged((2, 9, 5), *next(flags()), seed=6)
    fields = {n: v for n, v in vars(acceptance).items() if isinstance(v, Tensor)}
    turned = {n: v.transpose(1, 2).contiguous().mT for n, v in fields.items()}
    other = replace(acceptance, **turned)
    wanted = by_kernel(y, acceptance, None)
    check_equal(by_kernel(y.mT.contiguous().mT, other, None), wanted, "strided")


def test_nothing_is_known_of_outputs_without_elements() -> None:
    y, acceptance, _ = judged((3, 0), *next(flags()), seed=1)
    for found in (
        fused(y, acceptance, None),
        reduced(compare_members({"y": y}, {"y": acceptance})["y"]),
    ):
        assert found.worst.tolist() == found.missed.tolist() == [0, 0, 0]
        assert found.ratio.tolist() == [0.0, 0.0, 0.0]
