"""Domains in which dimensions and scalars depend on each other."""

import math
from dataclasses import replace

import pytest

from kfuzz.contracts import Operator
from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import Arguments, BoundKernel, friendly_shapes
from kfuzz.contracts.oracle import scalars_of
from kfuzz.core.declaration import ShapeClass
from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.strategies import scalar, tensors
from tests.helpers.budgets import SIZE_BUDGETS
from tests.helpers.kernel_draws import drawn
from tests.helpers.tiers import sampled, usual

NAMES = sorted(ops.OPERATORS)
RELATED = [name for name in NAMES if ops.OPERATORS[name].shape_class]


def kernel_of(
    operator: Operator, *, omit: tuple[str, ...] = (), **claims: object
) -> BoundKernel:
    return BoundKernel(
        lambda *args: None,
        name="kernel",
        operator=operator,
        declaration=operator.defaults.declare("kernel", **claims),
        explicit=frozenset(claims),
        arguments=Arguments(
            tuple(n for n in operator.tensors if n not in omit),
            tuple(n for n in operator.scalars if n not in omit),
        ),
        module="m",
        line=1,
        top_level=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["interpret", usual("cpu", is_usual=False)])
@pytest.mark.parametrize("name", sampled(RELATED, one_in=2))
def test_drawn_cases_lie_in_the_domain_and_the_budget(name: str, backend: str) -> None:
    operator = ops.OPERATORS[name]
    kernel = kernel_of(operator)
    cases = drawn(kernel, 150, backend)
    assert len(cases) > 140
    for case in cases:
        assert operator.accepts(case, kernel.declaration)
        for dims in operator.workspaces:
            made = math.prod(case.dims[axis] for axis in dims.split())
            assert made <= SIZE_BUDGETS[backend].elements


def test_an_omitted_scalar_counts_with_its_default() -> None:
    kernel = kernel_of(ops.conv2d, omit=("padding", "dilation", "groups"))
    for case in drawn(kernel, 80):
        assert case.dims["H"] >= case.dims["R"]
        assert case.dims["I"] == case.dims["C"]
        assert set(case.scalars) == {"stride"}


def test_a_fixed_scalar_has_one_value_given_or_not() -> None:
    turned = ops.rope.fixed(interleaved=True)
    for omit in ((), ("interleaved",)):
        kernel = kernel_of(turned, omit=omit)
        for case in drawn(kernel, 20):
            assert case.scalars.get("interleaved", True) is True
            assert scalars_of(turned, case, {})["interleaved"] is True
    assert ops.rope.default_of("interleaved") is False
    for wrong in ({"x": 1}, {"heads": 1}, {"interleaved": 3}):
        with pytest.raises(BindingError, match="operator rope"):
            ops.rope.fixed(**wrong)
    with pytest.raises(BindingError, match="'mean', 'sum', 'none'"):
        ops.cross_entropy.fixed(reduction="batch")
    with pytest.raises(BindingError, match="declare dims= of the kernel"):
        ops.softmax.fixed(dim=-1)
    assert ops.attention.fixed(scale=0.3).default_of("scale") == 0.3


def attention_case(**sizes: int) -> Case:
    size = {"B": 1, "H": 2, "G": 2, "S": 2, "T": 3, "D": 4, **sizes}
    made = {}
    for name, parameter in ops.attention.tensors.items():
        shape = tuple(size[a] for a in parameter.names)
        made[name] = TensorSpec(shape, parameter.names, "float32", fill=Fill("randn"))
    return Case(made, {"causal": False, "scale": None})


def test_cases_outside_the_domain_are_not_admitted() -> None:
    claims = ops.attention.defaults
    assert ops.attention.accepts(attention_case(), claims)
    assert ops.attention.accepts(attention_case(H=6, G=3), claims)
    assert ops.attention.accepts(attention_case(T=0), claims)
    for sizes in ({"H": 3}, {"G": 0}, {"H": 0}, {"D": 0}):
        assert not ops.attention.accepts(attention_case(**sizes), claims)
    short = replace(claims, shape_class=ShapeClass.parse("N <= 2"))
    # N is the number of keys, which the first tensor lacks.
    assert not ops.attention.accepts(attention_case(), short)
    assert ops.attention.accepts(attention_case(T=2), short)


def test_an_operators_shape_class_is_parsed() -> None:
    with pytest.raises(BindingError, match="operator odd"):
        Operator(
            "odd",
            inputs={"x": tensors("A B"), "k": scalar(1)},
            oracle=lambda x, *, k: x,
            error_model=lambda problem: {},
            shape_class="A % k = 0",
        )


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["interpret", "cpu"])
@pytest.mark.parametrize("name", NAMES)
def test_every_operator_has_friendly_shapes(name: str, backend: str) -> None:
    operator, budget = ops.OPERATORS[name], SIZE_BUDGETS[backend]
    case = drawn(kernel_of(operator), 1, backend)[0]
    defaults = {n: p.default for n, p in operator.scalars.items()}
    case = replace(case, scalars=defaults)
    made = list(friendly_shapes(operator, case, operator.defaults, budget))
    assert len(made) >= 3
    for friendly in made:
        assert operator.accepts(friendly, operator.defaults)
        assert max(s.numel for s in friendly.tensors.values()) <= budget.elements
