"""The comparator on a GPU, beside itself on the host."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from kfuzz.contracts.operators import OPERATORS
from kfuzz.contracts.oracle import accept, pose_members
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.compare import (
    Summary,
    compare_members,
    reduced,
    summarise,
)
from tests.gpu.waits import raising_waits
from tests.helpers.judged_values import flags, judged

pytestmark = pytest.mark.gpu


def check_equal(found: Summary, wanted: Summary, where: object) -> None:
    for field in ("worst", "missed", "undecided", "ratio"):
        ours, theirs = getattr(found, field).cpu(), getattr(wanted, field).cpu()
        same = (ours == theirs) | ((ours != ours) & (theirs != theirs))
        at = (~same).nonzero()[:4].flatten().tolist()
        text = f"{where}: {field} of {int((~same).sum())} members, first {at}: "
        text += f"{ours[at].tolist()} instead of {theirs[at].tolist()}"
        if field == "ratio":
            bits = [t[at].double().view(torch.int64).tolist() for t in (ours, theirs)]
            text += f", as bits {bits}"
        assert bool(same.all()), text


@pytest.mark.parametrize("combination", list(flags()), ids=str)
def test_every_element_has_the_hosts_outcome(combination: Any) -> None:
    # Each element is a member of its own, so that none hides another.
    y, acceptance, mask = judged((20_000, 1), *combination, seed=3)
    host = compare_members({"y": y}, {"y": acceptance})["y"]
    here = acceptance.mapped(Tensor.cuda)
    if mask is not None:
        related = mask.cuda()
        here = replace(here, relation=lambda outputs: {"y": related})
    found = summarise({"y": y.cuda()}, {"y": here})["y"]
    check_equal(found, reduced(host), combination)
    assert len(host.outcomes.unique()) >= 3


def softmax_case(rows: int, columns: int) -> Case:
    spec = TensorSpec((rows, columns), ("d0", "d1"), "float32", fill=Fill("randn"))
    return Case({"x": spec}, {"dim": -1})


def posed(name: str, case: Case, x: Tensor) -> dict[str, Acceptance]:
    operator = OPERATORS[name]
    problem = pose_members(operator, case, {"x": x}, operator.defaults)
    return accept(operator, problem)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "sum", "gelu", "relu"])
def test_judging_does_not_wait_for_the_device(name: str) -> None:
    case = softmax_case(4, 37)
    if name in ("gelu", "relu"):
        case = Case(case.tensors, {})
    x = torch.randn((6, 4, 37), device="cuda")

    def once() -> Summary:
        accepted = posed(name, case, x)
        y = {n: a.reference.float() for n, a in accepted.items()}
        return summarise(y, accepted)["y"]

    once()  # compiles, and makes the constants
    with raising_waits():
        found = once()
    assert found.missed.tolist() == [0] * 6


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "matmul"])
def test_members_on_the_device_have_the_hosts_outcomes(name: str) -> None:
    """Sums may differ in their last bits there; what is admitted may not."""
    operator, members = OPERATORS[name], 12
    axes = {"softmax": {"x": "AB"}, "matmul": {"a": "MK", "b": "KN"}}
    named = axes.get(name, {"x": "AN", "weight": "N", "bias": "N"})
    size = dict(zip("ABMKN", (5, 40, 9, 33, 21), strict=True))
    tensors = {
        n: TensorSpec(tuple(size[a] for a in d), tuple(d), "float32", fill=Fill("ones"))
        for n, d in named.items()
    }
    case = Case(tensors, {n: operator.default_of(n) for n in operator.scalars})
    generator = torch.Generator().manual_seed(4)
    values = {
        n: torch.randn((members, *s.shape), generator=generator)
        for n, s in tensors.items()
    }
    first = next(iter(values))
    values[first][1, 0, 0], values[first][2, 1, 3] = float("inf"), float("nan")
    values[first][3] *= 1e-40
    claims = operator.defaults
    host = accept(operator, pose_members(operator, case, values, claims))["y"]
    there = {n: v.cuda() for n, v in values.items()}
    device = accept(operator, pose_members(operator, case, there, claims))["y"]
    y = host.reference.float()
    y[5:, 0, 0] += 1.0
    wanted = reduced(compare_members({"y": y}, {"y": host})["y"])
    found = summarise({"y": y.cuda()}, {"y": device})["y"]
    for field in ("worst", "missed", "undecided"):
        ours, theirs = getattr(found, field).tolist(), getattr(wanted, field).tolist()
        assert ours == theirs, f"{name}: {field} {ours} instead of {theirs}"
    assert bool((wanted.missed[5:] == 1).all())
