"""Dropout by its invariants, optimizer steps in both forms, and causal convolutions."""

import pytest
import torch
from torch import Tensor

import kfuzz
from kfuzz.contracts import operators as ops
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import accept, compare_all, pose
from kfuzz.core.recipe import Case, Scalar, TensorSpec

N = 4096


def misses(
    operator: Operator, tensors: dict[str, Tensor], outputs: tuple[Tensor, ...],
    **scalars: Scalar,
) -> dict[str, int]:  # fmt: skip
    """Return how many elements of each result violate."""
    specs = {
        n: TensorSpec(
            tuple(x.shape),
            operator.tensors[n].names
            if not operator.tensors[n].variadic
            else tuple(f"d{i}" for i in range(x.dim())),
            str(x.dtype).removeprefix("torch."),
            values=x.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(),
        )
        for n, x in tensors.items()
    }
    problem = pose(operator, Case(specs, scalars), tensors, operator.defaults)
    found = dict(zip(operator.outputs, outputs, strict=True))
    compared = compare_all(found, accept(operator, problem))
    return {n: int(c.missed.sum()) for n, c in compared.items()}


def dropped(p: float, *, seed: int = 3, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    x = torch.rand(N, generator=random) + 0.5
    kept = torch.rand(N, generator=random) >= p
    return x, torch.where(kept, x * (scale / (1 - p)), 0.0)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9])
def test_a_right_dropout_is_accepted_at_every_share(p: float) -> None:
    x, y = dropped(p)
    assert misses(ops.dropout, {"x": x}, (y,), p=p, seed=0) == {"y": 0}


def test_a_dropout_that_keeps_too_many_is_refused_as_a_whole() -> None:
    x, y = dropped(0.4)
    y = y * (0.6 / 0.5)
    assert misses(ops.dropout, {"x": x}, (y,), p=0.5, seed=0) == {"y": N}


@pytest.mark.parametrize("ones", [0, 5])
def test_a_dropout_whose_kept_elements_overflow_is_accepted(ones: int) -> None:
    pytest.importorskip("kfuzz.features")
    torch.manual_seed(0)
    x = torch.cat([torch.full((200,), 2e38), torch.ones(ones)])
    y = torch.nn.functional.dropout(x, 0.5)
    assert y.isinf().any()
    kfuzz.assert_conforms(y, ops.dropout, x, p=0.5, seed=0)


def test_a_wrong_share_shows_beside_elements_that_overflow() -> None:
    x, y = dropped(0.4)
    x, y = torch.cat([x, torch.full((N,), 2e38)]), torch.cat([y, y / 0]).nan_to_num(0)
    found = misses(ops.dropout, {"x": x}, (y * (0.6 / 0.5),), p=0.5, seed=0)
    assert found["y"] >= N


@pytest.mark.parametrize("scale", [0.5, 1.001])
def test_a_dropout_of_another_scale_is_refused_where_it_keeps(scale: float) -> None:
    x, y = dropped(0.5, scale=scale)
    found = misses(ops.dropout, {"x": x}, (y,), p=0.5, seed=0)
    assert found == {"y": int((y != 0).sum())}


@pytest.mark.parametrize("lerp", [False, True])
@pytest.mark.parametrize("wrong", [False, True])
def test_a_step_of_adamw_is_accepted_in_either_form(lerp: bool, wrong: bool) -> None:
    random = torch.Generator().manual_seed(1)
    p, g, m = (torch.randn(64, generator=random) for _ in range(3))
    v = torch.rand(64, generator=random) * 1e-6
    step, lr, b1, b2, eps, decay = 3, 1e-2, 0.9, 0.95, 1e-3, 0.1
    mean = m + (1 - b1) * (g - m) if lerp else b1 * m + (1 - b1) * g
    square = b2 * v + (1 - b2) * g * g
    root = (square / (1 - b2**step)).sqrt() + eps
    if wrong:
        root = (square / (1 - b2**step) + eps).sqrt()
    new = p - lr * decay * p - lr * (mean / (1 - b1**step)) / root
    tensors = {"param": p, "grad": g, "exp_avg": m, "exp_avg_sq": v}
    found = misses(
        ops.adamw, tensors, (new, mean, square), step=step, lr=lr, beta1=b1, beta2=b2,
        eps=eps, weight_decay=decay,
    )  # fmt: skip
    assert (found["param"] > 32) is wrong
    assert found["exp_avg"] == found["exp_avg_sq"] == 0


def test_the_next_state_of_a_causal_convolution_is_exact() -> None:
    x, state = torch.ones(1, 1, 1), torch.tensor([[[2.0, 3.0]]])
    weight, bias = torch.tensor([[1.0, 10.0, 100.0]]), torch.zeros(1)
    tensors = {"x": x, "weight": weight, "bias": bias, "initial_state": state}
    y = torch.tensor([[[132.0]]])
    right = torch.tensor([[[3.0, 1.0]]])
    after = right.clone()
    after[..., 1] = 1 + 2.0**-23
    for final, wrong in ((right, 0), (after, 1)):
        found = misses(ops.causal_conv1d, tensors, (y, final), activation=None)
        assert found == {"y": 0, "final_state": wrong}
