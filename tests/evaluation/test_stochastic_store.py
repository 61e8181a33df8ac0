"""store="stochastic": either neighbour is admitted, and no draw is a defect."""

import itertools

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Kind
from tests.helpers.judged_cases import judged, spec, x_case

CASE = x_case("randn", (16, 33), "bfloat16", seed=2)
SUMS = Case({"x": CASE.tensors["x"]}, {"dim": -1})
DRAWS = itertools.count()


def rounded(y: Tensor, *, own_seed: bool = False) -> Tensor:
    """Round float32 to bfloat16: add random low bits, and cut them off."""
    generator = None
    if own_seed:
        generator = torch.Generator().manual_seed(next(DRAWS))
    bits = y.contiguous().view(torch.int32)
    noise = torch.randint(0, 1 << 16, y.shape, generator=generator, dtype=torch.int32)
    kept = torch.where(torch.isfinite(y), bits + noise, bits) & ~0xFFFF
    return kept.view(torch.float32).to(torch.bfloat16)


def stochastic(x: Tensor, dim: int = -1) -> Tensor:
    return rounded(x.float().sum(dim))


def of_own_seed(x: Tensor, dim: int = -1) -> Tensor:
    return rounded(x.float().sum(dim), own_seed=True)


def nearest(x: Tensor, dim: int = -1) -> Tensor:
    return x.float().sum(dim).to(x.dtype)


@pytest.mark.parametrize("determinism", ["bitwise", "run_to_run"])
@pytest.mark.parametrize("kernel", [stochastic, of_own_seed, nearest])
def test_either_neighbour_passes_under_every_seed(
    kernel: object, determinism: str
) -> None:
    claims = {"store": "stochastic", "determinism": determinism}
    report = judged(ops.sum, kernel, SUMS, **claims)  # type: ignore[arg-type]
    assert report.failure is None, report.failure
    assert report.ratio <= 1


def test_without_the_declaration_the_draw_is_a_defect() -> None:
    report = judged(ops.sum, stochastic, SUMS)
    assert report.failure is not None
    assert report.failure.kind is Kind.VALUE


def test_a_value_further_off_is_refused() -> None:
    def further(x: Tensor, dim: int = -1) -> Tensor:
        y = stochastic(x, dim)
        bits = y.view(torch.int16).clone()
        bits[0] += 2
        return bits.view(torch.bfloat16)

    report = judged(ops.sum, further, SUMS, store="stochastic")
    assert report.failure is not None
    assert report.failure.kind is Kind.VALUE
    assert report.failure.elements == 1


def test_a_fused_result_may_follow_what_was_stored() -> None:
    def normed(x: Tensor, residual: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
        h = rounded(x.float() + residual.float())
        y = h.float() * (h.float().square().mean(-1, keepdim=True) + eps).rsqrt()
        return rounded(y), h

    both = {
        name: spec("randn", (16, 33), "bfloat16", axes=("d0", "N"), seed=seed)
        for name, seed in (("x", 2), ("residual", 4))
    }
    case = Case(both, {"eps": 1e-6})
    report = judged(ops.add_rms_norm, normed, case, store="stochastic")
    assert report.failure is None, report.failure
