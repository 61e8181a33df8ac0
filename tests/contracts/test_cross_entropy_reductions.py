"""Losses of rows, and their sum, beside the mean of tests/unit/test_index_operators."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.core.recipe import Scalar
from kfuzz.numerics.compare import Outcome
from tests.contracts.test_index_operators import (
    DTYPES,
    cross_entropies,
    judge,
    missed,
)
from tests.helpers.correct_algorithms import rows_of, serial, store
from tests.helpers.correct_reductions import PARTS
from tests.helpers.tiers import sampled

NAN, INF = math.nan, math.inf
REDUCTIONS = ("sum", "none")


def losses(
    logits: Tensor,
    target: Tensor,
    *,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> Tensor:
    """Losses in float32, and their sum in order."""
    kept = (target != ignore_index).numpy()
    x = rows_of(logits, -1)
    s, at = np.float32(label_smoothing), np.where(kept, target.numpy(), 0)
    with np.errstate(all="ignore"):
        top, log_total = (part[:, 0] for part in PARTS["online"](x))
        depth = x - top[:, None]
        loss = log_total - depth[np.arange(len(x)), at]
        if label_smoothing:
            smooth = log_total - serial(depth) / np.float32(x.shape[1])
            loss = (np.float32(1) - s) * loss + s * smooth
        loss = np.where(kept, loss, np.float32(0))
        y = loss if reduction == "none" else serial(loss[None])[0]
    return store(np.asarray(y), logits.dtype).reshape(np.shape(y))


@pytest.mark.parametrize("dtype", sampled(DTYPES, one_in=2))
def test_correct_losses_are_admitted_on_every_family(dtype: str) -> None:
    """In float32, and torch's, whose intermediates are declared the output's."""
    decided = total = 0
    for i, (label, values, scalars) in enumerate(cross_entropies(dtype)):
        options = {**scalars, "reduction": REDUCTIONS[i % 2]}
        acceptance = judge("cross_entropy", values, options)[1]
        made = missed(losses(**values, **options), acceptance)
        assert not made.missed.any(), label
        decided += int((made.outcomes == Outcome.OK).sum())
        total += made.outcomes.numel()
        exact = values["logits"].double(), values["target"]
        wanted = ops.cross_entropy.oracle(*exact, **options)
        got = acceptance.reference[0]
        assert torch.allclose(wanted, got, rtol=1e-12, atol=1e-15, equal_nan=True)
        loose = judge("cross_entropy", values, options, intermediates="output")[1]
        y = torch.nn.functional.cross_entropy(*values.values(), **options)
        assert not missed(y, loose).missed.any(), label
    assert decided > 0.9 * total


def refused(y: Tensor, values: dict[str, Tensor], **scalars: Scalar) -> list[bool]:
    """Return per element whether a result is refused."""
    accepted = judge("cross_entropy", values, scalars)[1]
    found = missed(y.to(values["logits"].dtype), accepted).missed[0]
    return found.flatten().tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_wrong_row_is_one_miss_and_makes_a_wrong_sum(dtype: str) -> None:
    random = torch.Generator().manual_seed(5)
    logits = torch.randn(4, 9, generator=random).to(getattr(torch, dtype))
    values = {"logits": logits, "target": torch.tensor([0, 8, -100, 3])}
    log_p = torch.log_softmax(logits.double(), -1)
    y = -log_p[range(4), [0, 8, 0, 3]]
    y[2] = 0.0
    assert not any(refused(y, values, reduction="none"))
    assert refused(y.sum(), values, reduction="sum") == [False]
    for i, wrong in ((0, 0.0), (1, NAN), (2, float(-log_p[2, 0])), (3, INF)):
        other = y.clone()
        other[i] = wrong
        expected = [j == i for j in range(4)]
        assert refused(other, values, reduction="none") == expected
        assert refused(other.sum(), values, reduction="sum") == [True]
    for scale in (1 / 3, 1 / 4):  # a mean
        assert refused(y.sum() * scale, values, reduction="sum") == [True]


SPECIAL = [
    # Rows, targets, smoothing; what the rows are.
    ([[NAN, 0.0], [0.0, 0.0]], [0, 1], 0.0, [NAN, math.log(2)]),
    ([[NAN, INF], [0.0, 0.0]], [-100, 1], 0.0, [0.0, math.log(2)]),
    ([[-INF, 0.0], [INF, 0.0]], [0, 1], 0.0, [INF, NAN]),
    ([[-INF, 0.0], [-INF, 0.0]], [1, 1], 0.0, [0.0, 0.0]),
    ([[-INF, 0.0], [0.0, 0.0]], [1, -100], 0.1, [INF, 0.0]),
    ([[0.0, 0.0], [0.0, 0.0]], [-100, -100], 0.1, [0.0, 0.0]),
]


@pytest.mark.parametrize(("rows", "target", "s", "wanted"), SPECIAL)
def test_special_values(
    rows: list[list[float]], target: list[int], s: float, wanted: list[float]
) -> None:
    values = {"logits": torch.tensor(rows), "target": torch.tensor(target)}
    y = torch.tensor(wanted)
    assert not any(refused(y, values, reduction="none", label_smoothing=s))
    assert not any(refused(y.sum(), values, reduction="sum", label_smoothing=s))
    for i in range(2):
        for value in (NAN, INF, -INF, 7.0):
            wrong = y.clone()
            wrong[i] = value
            same = torch.equal(wrong.nan_to_num(3.0), y.nan_to_num(3.0))
            found = refused(wrong, values, reduction="none", label_smoothing=s)
            assert found == [j == i and not same for j in range(2)]


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_no_row_at_all(reduction: str) -> None:
    values = {"logits": torch.zeros(0, 3), "target": torch.zeros(0).long()}
    y = torch.zeros(() if reduction == "sum" else (0,))
    assert not any(refused(y, values, reduction=reduction))
    if reduction == "sum":
        assert refused(torch.tensor(NAN), values, reduction=reduction) == [True]


def test_the_logsumexp_less_the_logit_is_a_form_of_it() -> None:
    random = torch.Generator().manual_seed(2)
    logits = torch.randn(64, 16, generator=random)
    logits += torch.tensor([0.0, 100.0, 256.0, 4096.0]).repeat(16)[:, None]
    target = torch.randint(16, (64,), generator=random)
    values = {"logits": logits, "target": target}
    own = logits[range(64), target]
    for y in (
        torch.logsumexp(logits, -1) - own,
        torch.log(torch.exp(logits - logits[:, :1]).sum(-1)) + logits[:, 0] - own,
    ):
        assert not any(refused(y, values, reduction="none"))
    parts = PARTS["natural"](logits.numpy())
    top, log_total = (torch.from_numpy(part[:, 0]) for part in parts)
    # Rounded to half as many bits it is no such form.
    coarse = (top + log_total).bfloat16().float() - own
    wrong = refused(coarse, values, reduction="none")
    assert all(wrong[i] for i in range(64) if i % 4)
