"""Pooling, batch norm in training, running products and losses under the shadow."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from kfuzz.contracts.oracle import compare_all
from kfuzz.core.declaration import Declaration
from kfuzz.numerics.acceptance import Problem
from kfuzz.numerics.formats import FORMATS
from kfuzz.numerics.shadow import shadowed

PLANE, SPACE, ROWS = (2, 3, 8, 8), (1, 2, 6, 6, 6), (6, 16)


def normalised(x: Tensor) -> Tensor:
    moments = x.new_zeros(x.shape[1]), x.new_ones(x.shape[1])
    return functional.batch_norm(x, *moments, training=True)


RULES: dict[str, tuple[tuple[int, ...], Callable[[Tensor], Tensor]]] = {
    "batch_norm": (PLANE, normalised),
    "avg_pool2d": (PLANE, lambda x: functional.avg_pool2d(x, 3, 2, 1)),
    "avg_pool3d": (SPACE, lambda x: functional.avg_pool3d(x, 2, 1)),
    "max_pool2d": (PLANE, lambda x: functional.max_pool2d(x, 3, 1, 1, dilation=2)),
    "max_pool3d": (SPACE, lambda x: functional.max_pool3d(x, 3, 2, 1)),
    "max_pool2d_places": (
        PLANE,
        lambda x: functional.max_pool2d(x, (2, 3), 2, 1, return_indices=True)[1],
    ),
    "adaptive_avg": (PLANE, lambda x: functional.adaptive_avg_pool2d(x, (2, 4))),
    "adaptive_max": (PLANE, lambda x: functional.adaptive_max_pool2d(x, 2)),
    "cumprod": (ROWS, lambda x: torch.cumprod(x, 1)),
    "huber": (ROWS, lambda x: functional.huber_loss(x, x.flip(0), delta=0.5)),
    "smooth_l1": (ROWS, lambda x: functional.smooth_l1_loss(x, x.flip(0), beta=0.5)),
    "celu": (ROWS, lambda x: functional.celu(x, 0.7)),
    "threshold": (ROWS, lambda x: functional.threshold(x, 0.1, 20.0)),
    "hardshrink": (ROWS, functional.hardshrink),
    "softshrink": (ROWS, functional.softshrink),
}


@pytest.mark.parametrize("name", RULES)
def test_torch_is_admitted_and_a_wrong_value_is_not(name: str) -> None:
    shape, function = RULES[name]
    for seed, special in enumerate((None, None, float("nan"), float("inf"), 0.0)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        if special is not None:
            x.view(-1)[5] = special
        problem = Problem(
            tensors={"x": x.double()[None]},
            scalars={},
            format=FORMATS["float32"],
            output=FORMATS["float32"],
            declaration=Declaration(),
        )
        [accepted] = shadowed(function, problem, name=name)
        exact = function(x.double()).to(torch.float64)
        torch.testing.assert_close(
            accepted.reference[0].to(torch.float64), exact,
            rtol=1e-12, atol=1e-12, equal_nan=True,
        )  # fmt: skip
        y = function(x)
        assert not bool(compare_all({"y": y}, {"y": accepted})["y"].missed.any())
        if special is None:
            wrong = y + 1 if y.dtype is torch.int64 else y + 1e-3 * (1 + y.abs())
            assert bool(compare_all({"y": wrong}, {"y": accepted})["y"].missed.all())
