"""The fused comparator, compiled, beside the comparator in torch."""

from typing import Any

import pytest
import torch
from torch import Tensor

from kfuzz.contracts.operators import OPERATORS
from kfuzz.contracts.oracle import accept, pose_members
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.compare import (
    Outcome,
    Summary,
    compare_members,
    fused,
    is_fused,
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
def test_every_element_has_the_comparators_outcome(combination: Any) -> None:
    assert is_fused(torch.device("cuda")), "TRITON_INTERPRET is set, or no Triton"
    # Each element is a member of its own, so that none hides another.
    y, acceptance, mask = judged((20_000, 1), *combination, seed=3)
    host = compare_members({"y": y}, {"y": acceptance})["y"]
    here = acceptance.mapped(Tensor.cuda)
    related = None if mask is None else mask.cuda()
    check_equal(fused(y.cuda(), here, related), reduced(host), combination)
    assert len(host.outcomes.unique()) >= 3
    # The same elements as rows of several blocks and programs.
    rows = (7, 20_000 // 7)
    part = slice(rows[0] * rows[1])

    def again(t: Tensor) -> Tensor:
        return t[part].reshape(rows)

    found = fused(
        again(y.cuda()),
        here.mapped(again),
        None if related is None else again(related),
    )
    outcomes = again(host.outcomes)
    assert found.worst.tolist() == outcomes.amax(-1).tolist()
    assert found.missed.tolist() == (outcomes >= Outcome.VALUE).sum(-1).tolist()
    assert found.undecided.tolist() == (outcomes == 1).sum(-1).tolist()
    wanted = again(host.ratio).amax(-1)
    same = (found.ratio.cpu() == wanted) | wanted.isnan()
    assert bool(same.all()), f"{found.ratio} instead of {wanted}"


def softmax_case(rows: int, columns: int) -> Case:
    spec = TensorSpec((rows, columns), ("d0", "d1"), "float32", fill=Fill("randn"))
    return Case({"x": spec}, {"dim": -1})


def posed(name: str, case: Case, x: Tensor) -> dict[str, Acceptance]:
    operator = OPERATORS[name]
    problem = pose_members(operator, case, {"x": x}, operator.defaults)
    return accept(operator, problem)


@pytest.mark.parametrize("name", ["argmax", "topk", "quantize_int8"])
def test_relations_are_judged_as_without_the_kernel(name: str) -> None:
    operator, members = OPERATORS[name], 8
    spec = TensorSpec((5, 9), ("d0", "d1"), "float32", fill=Fill("randn"))
    case = Case({"x": spec}, {n: operator.default_of(n) for n in operator.scalars})
    generator = torch.Generator().manual_seed(2)
    x = torch.randn((members, 5, 9), generator=generator).round(decimals=1).cuda()
    accepted = posed(name, case, x)
    outputs = {}
    for output, a in accepted.items():
        first = a.reference[:1].expand_as(a.reference)
        outputs[output] = first.to(a.output.dtype).contiguous()
    found = summarise(outputs, accepted)
    plain = compare_members(outputs, accepted)
    for output in accepted:
        check_equal(found[output], reduced(plain[output]), (name, output))
    assert sum(int(s.missed.sum()) for s in found.values())


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
