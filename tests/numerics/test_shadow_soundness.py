"""The shadow admits what correct kernels give, and refuses a narrower arithmetic."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kfuzz.contracts.oracle import accept
from kfuzz.numerics.acceptance import tightened
from kfuzz.numerics.compare import Outcome, compare
from tests.helpers.impostors import posed
from tests.helpers.shadow_runs import accepted
from tests.helpers.subjects.basic import CORRECT, OPERATORS, SUBJECTS, TORCH

Step = Callable[[Tensor, Tensor], Tensor]
# Steps of [4, 24] that do not depend on the order of columns, given both at once.
STEPS: Final[dict[str, Step]] = {
    "scale": lambda x, y: x * 0.7 + y,
    "divide": lambda x, y: x / (1.5 + y * y),
    "decay": lambda x, y: torch.exp(-x.abs()) + y,
    "centre": lambda x, y: x - x.mean(-1, keepdim=True),
    "softmax": lambda x, y: torch.softmax(x * 3, -1),
    "log_softmax": lambda x, y: torch.log_softmax(x, -1),
    "layer_norm": lambda x, y: F.layer_norm(x, (24,), y[0], y[1], 1e-5),
    "rms": lambda x, y: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6),
    "normalise": lambda x, y: F.normalize(x, dim=-1),
    "gate": lambda x, y: F.silu(x) * y,
    "gelu": lambda x, y: F.gelu(x) + F.gelu(y, approximate="tanh"),
    "tanh": lambda x, y: torch.tanh(x) - 0.1,
    "root": lambda x, y: torch.sqrt(x * x + 1e-3),
    "choose": lambda x, y: torch.where(x > y, x, 0.5 * y),
    "relu": lambda x, y: torch.relu(x) + torch.clamp(y, -0.3, 0.9),
    "attend": lambda x, y: torch.softmax(x @ y.t(), -1) @ y,
    "product": lambda x, y: (x @ y.t()) @ y / 24,
    "logsumexp": lambda x, y: x - torch.logsumexp(x, -1, keepdim=True),
    "spread": lambda x, y: x / (x.std(-1, keepdim=True) + 0.5),
    "top": lambda x, y: x - x.amax(-1, keepdim=True),
    "powers": lambda x, y: x.abs() ** 1.5 - y**2,
    "plus": lambda x, y: F.softplus(x) - F.elu(y),
    "in place": lambda x, y: x.clone().mul_(y).add_(x, alpha=0.3),
    "total": lambda x, y: y + x.sum(-1, keepdim=True) / 7,
}


pytestmark = pytest.mark.slow


def chain_of(seed: int) -> tuple[list[str], Step]:
    draw = random.Random(seed)
    names = [draw.choice(list(STEPS)) for _ in range(draw.randint(1, 4))]

    def run(x: Tensor, y: Tensor) -> Tensor:
        for name in names:
            x = STEPS[name](x, y)
        return x

    return names, run


def data_of(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(4, 24, generator=generator) for _ in range(2))
    return x * (1.0, 10.0, 0.1)[seed % 3] + (0.0, 0.0, 30.0)[seed // 3 % 3], y


def test_float32_in_another_order_never_exceeds_the_bound() -> None:
    judged = 0
    for seed in range(60):
        names, run = chain_of(seed)
        x, y = data_of(seed)
        order = torch.randperm(24, generator=torch.Generator().manual_seed(seed))
        # Reversed and shuffled columns are summed in another order.
        back = torch.argsort(order)
        made = tightened(accepted(run, x, y))
        for got in (run(x, y), run(x[:, order], y[:, order])[:, back]):
            found = compare(got[None], made)
            assert not found.missed.any(), (seed, names)
            judged += int((found.outcomes == Outcome.OK).sum())
    assert judged > 10_000


def test_a_run_in_half_precision_exceeds_it_four_times() -> None:
    refused = 0
    for seed in range(60):
        _, run = chain_of(seed)
        x, y = (t.half().float() for t in data_of(seed))
        got = run(x.half(), y.half()).float()
        refused += bool(compare(got[None], accepted(run, x, y)).missed.any())
    assert refused >= 55


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", OPERATORS)
def test_correct_kernels_are_admitted_on_every_family(name: str, dtype: str) -> None:
    operator = replace(OPERATORS[name], error_model=None)
    decided = total = 0
    for case in posed(SUBJECTS[name], dtype)[::2]:
        made = accept(operator, case.problem)["y"]
        kernels = dict(CORRECT[name])
        if dtype == "float32":  # torch rounds some intermediates of 16-bit data
            kernels["torch"] = TORCH[name]
        for label, algorithm in kernels.items():
            found = compare(case.run(algorithm)["y"][None], made)
            assert not found.missed.any(), f"{label} on {case}"
            decided += int((found.outcomes == Outcome.OK).sum())
            total += found.outcomes.numel()
    assert decided > 0.8 * total
