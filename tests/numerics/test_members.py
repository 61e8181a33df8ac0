"""Many members at once are admitted what each would be alone."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from torch import Tensor

from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, batchable
from kfuzz.contracts.operators import OPERATORS
from kfuzz.contracts.oracle import accept, compare_all, pose, pose_members
from kfuzz.core.budget import SizeBudget
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.execution.values.fills import logical_values
from kfuzz.numerics.acceptance import Acceptance, Problem, around
from kfuzz.numerics.compare import compare_members
from kfuzz.numerics.models.functions import elementwise
from kfuzz.strategies.cases import cases
from tests.helpers.tiers import sampled

CPU: Final = torch.device("cpu")
FIELDS: Final = (
    "reference", "low", "high", "classes", "undecided", "ambiguous",
)  # fmt: skip
# What members but the first hold: families by the kind of an argument.
FAMILIES: Final = {
    "float": ("infmix", "subnormal", "nan1", "nearmax"),
    "int": ("int_ends", "int_zeros", "int_small", "int_uniform"),
    "uint": ("int_ends", "int_zeros", "int_small", "int_uniform"),
    "bool": ("bool_all_false", "bool_tail", "bool_random", "bool_all_true"),
    "index": ("index_equal", "index_last", "index_reversed", "index_first"),
}
# Torch's vectorised functions and its scalar ones, which take what is left at a
# tensor's end, differ in the last bits.
FUNCTIONS: Final = {"gelu", "gelu_tanh", "sigmoid", "silu", "softplus", "swiglu",
                    "geglu", "linear_gelu", "elu", "tanh", "exp", "log",
                    "kl_div", "js_div", "bce_with_logits", "gated_rms_norm",
                    "gated_layer_norm", "causal_conv1d", "adamw",
                    "topk_routing"}  # fmt: skip
# Where the smallest case takes more than that of the others.
BUDGETS: Final = {"scaled_matmul_blocks": SizeBudget(elements=1 << 15, rows=256)}
# BLAS may take other steps for other numbers of matrices.
PRODUCTS: Final = {"matmul", "bmm", "linear", "linear_relu", "linear_gelu", "conv2d",
                   "conv1d", "conv3d", "conv_transpose1d", "conv_transpose2d",
                   "linear_cross_entropy",
                   "attention", "attention_lse", "attention_varlen",
                   "attention_paged", "linear_attention", "delta_rule", "mx_matmul",
                   "int4_matmul", "gptq_matmul", "scaled_matmul_blocks",
                   "scaled_matmul_fp8", "scaled_matmul_int8", "grouped_matmul",
                   "moe_combine"}  # fmt: skip
CLAIMS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"subnormals": "flush", "nonfinite": "mask", "ties": "first"},
    {"intermediates": "output", "accumulator": "tf32x3", "store": "stochastic"},
)


def without_strays(case: Case) -> Case:
    inside = {
        n: replace(spec, plants=(), fill=Fill("index_sorted", 1))
        for n, spec in case.tensors.items()
        if spec.below
    }
    return replace(case, tensors={**case.tensors, **inside})


@cache
def drawn(name: str) -> list[Case]:
    """Return six small cases of an operator, of all its dtypes."""
    operator, found = OPERATORS[name], []
    strategy = cases(
        operator.inputs,
        declaration=replace(operator.defaults, dtypes=operator.dtypes),
        budget=BUDGETS.get(name, SizeBudget(elements=1 << 8, rows=32)),
        ranks=operator.ranks,
        reduced=operator.reduced,
        empty_reduction=operator.empty_reduction,
        shape_class=operator.shape_class,
        workspaces=operator.workspaces,
    )

    @seed(11)
    @settings(
        max_examples=6, database=None, deadline=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def collect(case: Case) -> None:
        # An oracle alone raises where an index strays.
        found.append(case if operator.error_model else without_strays(case))

    collect()
    return found


def values_of(operator: Operator, case: Case, member: int) -> dict[str, Tensor]:
    """Return the values of a member, other families than the case's in all but one."""
    tensors = dict(case.tensors)
    for name, spec in case.tensors.items() if member else ():
        kind = "index" if spec.below else operator.tensors[name].kind
        assert spec.fill is not None
        family = FAMILIES[kind][member % 4]
        fill = Fill(family, spec.fill.seed + member, spec.fill.axis)
        tensors[name] = replace(spec, fill=fill)
    made = replace(case, tensors=tensors)
    return {name: logical_values(made, name, CPU) for name in tensors}


def stacked(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def differing(
    name: str, field: str, found: Acceptance, wanted: Acceptance, member: int
) -> Tensor:
    """Return where a member's field is not what it is alone."""
    a, b = getattr(found, field)[member], getattr(wanted, field)[0]
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    if a.dtype is not torch.float64:
        return torch.as_tensor(a != b)
    same = (a == b) | (a.isnan() & b.isnan())
    if name in FUNCTIONS | PRODUCTS:
        width = wanted.high[0] - wanted.low[0]
        room = width * 2.0**-20 + b.abs() * 2.0**-48
        same = same | ((a - b).abs() <= room)
    return ~same


def check_members(operator: Operator, *given_: dict[str, str]) -> None:
    """Hold each case, under the given claims in turn, to what members are alone."""
    for j, case in enumerate(drawn(operator.name)):
        changed: dict[str, Any] = dict(given_[j % len(given_)])
        claims = replace(operator.defaults, **changed)
        rows = [values_of(operator, case, i) for i in range(4)]
        posed = pose_members(operator, case, stacked(rows), claims)
        every = accept(operator, posed)
        for i, row in enumerate(rows):
            alone = accept(operator, pose(operator, case, row, claims))
            assert list(every) == list(alone)
            for output, wanted in alone.items():
                for field in FIELDS:
                    wrong = differing(operator.name, field, every[output], wanted, i)
                    text = f"{output}.{field} of member {i}: {case}"
                    assert not bool(wrong.any()), text


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(OPERATORS, one_in=3))
def test_members_are_admitted_what_each_is_alone(name: str) -> None:
    check_members(OPERATORS[name], *CLAIMS)


@pytest.mark.parametrize("name", ["embedding", "gather", "cross_entropy"])
def test_members_may_hold_indices_that_are_clamped(name: str) -> None:
    check_members(OPERATORS[name], {"out_of_bounds": "clamp"})


def test_every_operator_is_asked_once_for_all_members() -> None:
    assert all(batchable(operator) for operator in OPERATORS.values())


def rows(members: int, *shape: int) -> tuple[Case, Tensor]:
    axes = tuple(f"d{i}" for i in range(len(shape)))
    case = Case({"x": TensorSpec(shape, axes, "float32", fill=Fill("randn"))}, {})
    generator = torch.Generator().manual_seed(2)
    return case, torch.randn((members, *shape), generator=generator)


def users(oracle: Callable[..., Any], **rest: Any) -> Operator:
    return Operator("theirs", inputs={"x": ks.tensors("*")}, oracle=oracle, **rest)


def references(operator: Operator, case: Case, x: Tensor) -> tuple[Tensor, list[int]]:
    """Return the references of all members, and how often the oracle was asked."""
    asked = [0]

    def watched(*args: Any, **scalars: Any) -> Any:
        asked[0] += 1
        return operator.oracle(*args, **scalars)

    made = replace(operator, oracle=watched)
    claims = operator.defaults
    found = accept(made, pose_members(made, case, {"x": x}, claims))["y"].reference
    return found, asked


BUDGET: Final = elementwise(ulps=2)
ONE_BY_ONE: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "its shape": lambda x: x * x.shape[0],
    "its maximum": lambda x: x / x.abs().max(),
    "a cast": lambda x: x.float() * 2,
    "a constant": lambda x: x + torch.ones(x.shape[-1]),
}


@pytest.mark.parametrize("error", [BUDGET, None], ids=["elementwise", "shadow"])
@pytest.mark.parametrize("name", list(ONE_BY_ONE))
def test_an_oracle_is_shown_one_member_though_it_runs_once(
    name: str, error: object
) -> None:
    oracle = ONE_BY_ONE[name]
    case, x = rows(9, 3, 5)
    found, asked = references(users(oracle, error_model=error), case, x)
    wanted = torch.stack([oracle(row) for row in x.double()])
    assert torch.allclose(found, wanted.double(), 1e-12, 0.0)
    assert asked[0] < 9


def branching(x: Tensor) -> Tensor:
    """Branches on its elements, which no batch can."""
    return x * 2 if bool(x.max() > 1.5) else x * 3


@pytest.mark.parametrize("error", [BUDGET, None], ids=["elementwise", "shadow"])
def test_an_oracle_that_branches_is_asked_for_each_member(error: object) -> None:
    case, x = rows(6, 4)
    found, asked = references(users(branching, error_model=error), case, x)
    wanted = torch.stack([branching(row) for row in x.double()])
    assert torch.equal(found, wanted)
    assert asked[0] >= 6


def coupled(problem: Problem) -> dict[str, Acceptance]:
    """Bounds every member by the greatest element of all, as one member allows."""
    x = problem.tensors["x"]
    return {"y": around(problem, x, float(x.abs().max()) * 2.0**-20)}


def test_error_models_of_users_see_one_member_at_a_time() -> None:
    operator = users(lambda x: x, error_model=coupled)
    assert not batchable(operator)
    case, x = rows(4, 5)
    claims = operator.defaults
    every = accept(operator, pose_members(operator, case, {"x": x}, claims))["y"]
    for i in range(4):
        alone = accept(operator, pose(operator, case, {"x": x[i]}, claims))["y"]
        for field in FIELDS:
            assert torch.equal(getattr(every, field)[i], getattr(alone, field)[0])


def first_only(problem: Problem, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Its results begin with the first element of the first member."""
    y, x = outputs["y"], problem.tensors["x"]
    return {"y": (y == x[0, 0]) | (torch.arange(y.shape[-1]) > 0)}


def test_relations_of_users_see_one_member_at_a_time() -> None:
    operator = users(
        lambda x: x, error_model=elementwise(ulps=2.0**30), relation=first_only
    )
    case, x = rows(3, 4)
    y = x.clone()
    y[1, 0] *= 1.5
    claims = operator.defaults
    accepted = accept(operator, pose_members(operator, case, {"x": x}, claims))
    made = compare_members({"y": y}, accepted)["y"]
    assert made.missed[:, 0].tolist() == [False, True, False]
    for i in range(3):
        alone = accept(operator, pose(operator, case, {"x": x[i]}, claims))
        single = compare_all({"y": y[i]}, alone)["y"]
        assert torch.equal(made.outcomes[i], single.outcomes[0])
