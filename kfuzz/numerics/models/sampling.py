"""Which elements of a row a kernel may choose by their probabilities.

Probabilities p = exp(x - max) / S, computed within a relative eps = rho + R + 5u (see
`log_sum_exp`), are compared after they are rounded: what differs by less than both
errors counts as equal, and of equal ones any may come first.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import (
    NEGATIVE_INF,
    Acceptance,
    Problem,
    around,
    between,
    classes_of,
    moved,
)
from kfuzz.numerics.accumulation import U32, gamma
from kfuzz.numerics.formats import FORMATS, INTEGERS
from kfuzz.numerics.models.sums import exponentials

_SINGLE = FORMATS["float32"]


@dataclass(frozen=True)
class Probabilities:
    """The probabilities of rows along the last dimension.

    Attributes:
        logs: float64, their logarithms [members, *, N]; -Inf in rows that are special.
        error: float64, that of the logarithms.
        floor: below this a probability may be 0.
        plain: bool [members, *, 1], no NaN, +Inf, nor -Inf throughout, and no overflow.
    """

    logs: Tensor
    error: Tensor
    floor: float
    plain: Tensor

    @classmethod
    def of(cls, problem: Problem, x: Tensor) -> "Probabilities":
        """Return those of logits, [members, *, N] with N >= 1."""
        e = exponentials(problem, x, -1)
        plain = e.plain & ~e.ambiguous & torch.isfinite(e.spread)
        logs = torch.where(plain, e.depth - e.log_total, -math.inf)
        error = e.rho + e.spread + 5 * e.unit + 2.0**-48
        # Of -Inf nothing is left, whatever its error.
        error = torch.where(logs == -math.inf, 0.0, error)
        return cls(logs, error, 2 * e.flushed, plain)

    @property
    def value(self) -> Tensor:
        """The probabilities."""
        return torch.exp(self.logs)

    @property
    def least(self) -> Tensor:
        """The least that may be computed."""
        return (torch.exp(self.logs - self.error) - self.floor).clamp(min=0)

    @property
    def most(self) -> Tensor:
        """The greatest."""
        return torch.exp(self.logs + self.error) + self.floor


def routed(problem: Problem) -> dict[str, Acceptance]:
    """Return the acceptances of the k greatest probabilities and of their indices.

    Sorted, and with `renormalize` divided by their sum: gamma(k) and a division more.
    The relation, `consistent`, judges which are named.
    """
    x, k = problem.tensors["logits"], problem.axis("k")
    p = Probabilities.of(problem, x)
    low, high = (v.sort(-1, descending=True).values[..., :k] for v in (p.least, p.most))
    value = p.value.sort(-1, descending=True).values[..., :k]
    if problem.scalars["renormalize"]:
        low, high = _renormalized(low, high)
        value = value / _positive(value.sum(-1, keepdim=True))
    unsure = (~p.plain).expand_as(value)
    weights = between(
        problem, value, torch.minimum(low, value), torch.maximum(high, value),
        undecided=unsure, output=_SINGLE,
    )  # fmt: skip
    index = x.sort(dim=-1, descending=True, stable=True).indices[..., :k].double()
    last = torch.full_like(index, max(x.shape[-1] - 1, 0))
    indices = between(
        problem, index, torch.zeros_like(index), last,
        undecided=unsure, output=INTEGERS["int64"],
    )  # fmt: skip
    return {"weights": weights, "indices": indices}


def _renormalized(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Return p / (p + rest), which grows with p and falls with the rest."""
    own = 1 + gamma(low.shape[-1] + 4, U32)
    rest = [v.sum(-1, keepdim=True) - v for v in (low, high)]
    return low / _positive(low + rest[1]) / own, high / _positive(high + rest[0]) * own


def _positive(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, 1.0)


def consistent(problem: Problem, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return where indices name a probability that may be in order there, none twice.

    And where weights are those of the indices beside them.
    """
    x, k = problem.tensors["logits"], problem.axis("k")
    p = Probabilities.of(problem, x)
    index = outputs["indices"].to(torch.int64)
    inside = (index >= 0) & (index < x.shape[-1])
    safe = index.clamp(0, max(x.shape[-1] - 1, 0))
    most, least = p.most.gather(-1, safe), p.least.gather(-1, safe)
    # The j-th in order is at least the j-th of the least that all may be.
    lowest = p.least.sort(-1, descending=True).values[..., :k]
    highest = p.most.sort(-1, descending=True).values[..., :k]
    fits = inside & (most >= lowest) & (least <= highest)
    same = (safe.unsqueeze(-1) == safe.unsqueeze(-2)).sum(-1) > 1
    named = outputs["weights"].to(torch.float64)
    low, high = least, most
    if problem.scalars["renormalize"]:
        low, high = _renormalized(least, most)
    tiny = _SINGLE.min_normal
    right = (named >= low * (1 - U32) - tiny) & (named <= high * (1 + U32) + tiny)
    special = ~p.plain
    return {"indices": (fits & ~same) | special, "weights": right | same | special}


def nucleus(problem: Problem) -> Acceptance:
    """Return what top-p keeps: logits before which less than p lies, others -Inf.

    The greatest is kept always. The sum of what is greater, in any order, is off by
    gamma(N) and the errors of its terms; what may be equal comes before or after.
    """
    x, limit = problem.tensors["logits"], problem.number("p")
    if x.numel() == 0:
        return moved(problem, x)
    p = Probabilities.of(problem, x)
    order = p.logs.sort(dim=-1, descending=True).indices
    values = p.value.gather(-1, order)
    total = torch.nn.functional.pad(values.cumsum(-1), (1, 0))
    most, least = p.most.gather(-1, order), p.least.gather(-1, order)
    # Both fall along the row, but for last bits: their running bounds do.
    above = torch.cummax(most.flip(-1), -1).values.flip(-1)
    below = torch.cummin(least, -1).values
    # Certainly before: those whose least exceeds its most; perhaps: the converse.
    sure = torch.searchsorted((-below).contiguous(), (-above).contiguous())
    maybe = torch.searchsorted((-above).contiguous(), (-below).contiguous(), right=True)
    first, last = total.gather(-1, sure), total.gather(-1, maybe) - values
    slack = _slack(problem, p, limit)
    kept = last.clamp(min=0) + slack < limit
    gone = first - slack > limit
    kept, gone = (torch.empty_like(m).scatter_(-1, order, m) for m in (kept, gone))
    # One of what may be the greatest stays, if it is only one.
    leading = p.most >= p.least.amax(-1, keepdim=True)
    alone = leading.sum(-1, keepdim=True) == 1
    gone, kept = gone & ~leading, kept | (leading & alone)
    return _filtered(problem, x, kept, gone, p.plain)


def _slack(problem: Problem, p: Probabilities, limit: float) -> Tensor:
    """Return what a sum of probabilities and the bound may be off, [members, *, 1]."""
    count = p.logs.shape[-1]
    of_terms = (p.most - p.value).sum(-1, keepdim=True)
    of_sum = gamma(count, U32) + gamma(count, problem.accumulation.format.unit)
    return (of_sum + 2 * U32) * (1 + limit) + of_terms + count * p.floor


def heavy_enough(problem: Problem, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return where what a row keeps has the probability that top-p asks for."""
    x, limit, y = problem.tensors["logits"], problem.number("p"), outputs["y"]
    if x.numel() == 0:
        return {"y": torch.ones_like(y, dtype=torch.bool)}
    p = Probabilities.of(problem, x)
    kept = y > -math.inf
    total = torch.where(kept, p.value, 0.0).sum(-1, keepdim=True)
    held = kept.any(-1, keepdim=True) & (total + _slack(problem, p, limit) >= limit)
    return {"y": (held | ~p.plain).expand_as(y)}


def greatest(problem: Problem) -> Acceptance:
    """Return what top-k keeps: what exceeds the k-th, and some of what equals it.

    Others are -Inf. How many of equal ones are kept, k in all or every one, `enough`
    judges.
    """
    x, k = problem.tensors["logits"], problem.axis("k")
    if x.numel() == 0 or k == 0:
        return moved(problem, torch.full_like(x, -math.inf))
    least = x.sort(-1, descending=True).values[..., k - 1 : k]
    plain = ~x.isnan().any(-1, keepdim=True)
    near = torch.zeros_like(x, dtype=torch.bool)
    if problem.flushes:
        tiny = problem.format.min_normal
        near = (x.abs() < tiny) & (least.abs() < tiny)
    return _filtered(problem, x, (x > least) & ~near, (x < least) & ~near, plain)


def enough(problem: Problem, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return where a row keeps k elements or more, or all above -Inf."""
    x, k, y = problem.tensors["logits"], problem.axis("k"), outputs["y"]
    finite = (x > -math.inf).sum(-1, keepdim=True).clamp(max=k)
    held = (y > -math.inf).sum(-1, keepdim=True) >= finite
    plain = ~x.isnan().any(-1, keepdim=True)
    return {"y": (held | ~plain).expand_as(y)}


def _filtered(
    problem: Problem, x: Tensor, kept: Tensor, gone: Tensor, plain: Tensor
) -> Acceptance:
    """Return logits as they are where kept, -Inf where gone, either elsewhere."""
    own = classes_of(x)
    either = (own | NEGATIVE_INF).to(torch.uint8)
    classes = torch.where(kept, own, torch.where(gone, NEGATIVE_INF, either))
    reference = torch.where(gone, -math.inf, x)
    return around(
        problem, reference, 0.0, classes=classes.to(torch.uint8),
        undecided=(~plain).expand_as(x),
    )  # fmt: skip
