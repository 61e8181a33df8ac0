"""Monitored functions under torch.compile and autograd: no bit changes."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import kfuzz
from tests.helpers import monitors
from tests.helpers.monitors import SECONDS

fresh, quiet = monitors.fresh, monitors.quiet


def plain_softmax(x: Tensor, dim: int = -1) -> Tensor:
    return torch.softmax(x, dim)


def plain_pair(x: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    return x * scale, (x + scale).sum()


def plain_relu(x: Tensor) -> Tensor:
    return x.relu_()


softmax = kfuzz.monitor("softmax", rate=1.0)(plain_softmax)
pair = kfuzz.monitor(plain_pair, rate=1.0)(plain_pair)
relu = kfuzz.monitor("relu", rate=1.0, inplace="x")(plain_relu)
wrong = kfuzz.monitor("softmax", rate=1.0, name="wrong")(
    lambda x, dim=-1: torch.softmax(x, dim) * 1.01
)


def step(x: Tensor, dim: int) -> Tensor:
    a, b = pair(softmax(relu(torch.sin(x)), dim=dim), 2.5)
    return wrong(a + b, dim)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_code_has_no_graph_break_and_is_judged(backend: str) -> None:
    torch._dynamo.reset()
    before = {f: f.monitor.statistics() for f in (softmax, pair, relu, wrong)}
    compiled = torch.compile(step, backend=backend, fullgraph=True)
    for rows in (3, 4, 5):
        x = torch.randn(rows, 6, requires_grad=True)
        y = compiled(x, 0)
        y.square().sum().backward()
        assert x.grad is not None
        grad, x.grad = x.grad, None
        wanted = step(x, 0)
        wanted.square().sum().backward()
        assert torch.equal(y, wanted)
        assert torch.equal(grad, x.grad)
    assert kfuzz.monitor.flush(SECONDS)
    for function, then in before.items():
        now = function.monitor.statistics()
        assert now.checked - then.checked == 6
        assert now.errors == now.dropped == 0
        assert now.violations - then.violations == (6 if function is wrong else 0)


class Scaled(torch.nn.Module):
    @kfuzz.monitor("softmax", rate=1.0)
    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x, -1)


def test_methods_break_the_graph_and_are_judged() -> None:
    torch._dynamo.reset()
    before = Scaled.forward.monitor.statistics()
    module = Scaled()
    compiled = torch.compile(lambda x: module(x * 2.0) + 1.0, backend="eager")
    x = torch.randn(3, 4)
    assert torch.equal(compiled(x), torch.softmax(x * 2.0, -1) + 1.0)
    assert kfuzz.monitor.flush(SECONDS)
    assert Scaled.forward.monitor.statistics().checked - before.checked == 1


def network(first: Any, second: Any, third: Any, x: Tensor, scale: float) -> Tensor:
    a, b = second(first(x, dim=-1), scale)
    return third(torch.sin(a)) * b


@pytest.mark.slow
@given(
    rows=st.integers(0, 5),
    columns=st.integers(1, 9),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    layout=st.sampled_from(["dense", "transposed", "expanded", "sliced"]),
    scale=st.floats(-4.0, 4.0),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=25, derandomize=True, database=None, deadline=None)
def test_monitoring_changes_no_bit_of_results_and_gradients(
    rows: int, columns: int, dtype: torch.dtype, layout: str, scale: float, seed: int
) -> None:
    found = []
    for parts in ((plain_softmax, plain_pair, plain_relu), (softmax, pair, relu)):
        torch.manual_seed(seed)
        leaf = torch.randn(columns, rows, dtype=dtype, requires_grad=True)
        x = leaf.t()
        if layout == "dense":
            x = x.contiguous()
        elif layout == "expanded":
            x = leaf[:1, :].t().expand(rows, columns)
        elif layout == "sliced":
            x = leaf.t()[:, ::2]
        y = network(*parts, x, scale)
        y.sum().backward()
        drawn = torch.rand(1)  # the caller's generator goes on as before
        found.append((y.detach(), leaf.grad, drawn))
    for plain, monitored in zip(*found, strict=True):
        assert torch.equal(_bits(plain), _bits(monitored))


def _bits(x: Tensor) -> Tensor:
    return x.view(torch.int32 if x.element_size() == 4 else torch.int16)
