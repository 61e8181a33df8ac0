"""cross_entropy(logits, target): the mean loss of a classifier."""

from typing import TYPE_CHECKING, Any

from kfuzz import strategies as ks
from kfuzz.contracts.language import Operator, Structure, Tolerance

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem

# The smallest tile for which an online rescaling is admitted.
ONLINE_TILE = 16
# Relative error of log: 2 ulp from correctly rounded, in units.
LOG_ERROR = 5
# Roundings behind the log-probabilities: 1 - s and s / C, the two products, their
# sum; with intermediates in the output's format also the sums over classes and
# rows as they are stored, the count and its division.
STEPS = 6


def reference(
    logits: Any, target: Any, *, ignore_index: int, label_smoothing: float
) -> Any:
    """Mean over the rows not ignored of (1-s) (-log p_t) + s/C sum_j (-log p_j)."""
    import torch

    kept = target != ignore_index
    log_p = torch.log_softmax(logits[kept], -1)
    loss = -log_p.gather(-1, target[kept].unsqueeze(-1)).squeeze(-1)
    if label_smoothing:
        loss = (1 - label_smoothing) * loss - label_smoothing * log_p.mean(-1)
    return loss.mean()


def accept(problem: "Problem") -> "dict[str, Acceptance]":
    """Return the interval of the mean of log-softmax losses.

    With d = x - max, S = sum exp(d) and u the unit of the intermediates:
    rho = 4u|d| + 5u bounds the relative error of exp(d), R = sum p rho +
    gamma(C-1) + 6u T that of S in T online rescalings, and
    e = 4u|d| - log(1-R) + 5u log S + 2u|log p| the error of a log-probability.
    A row has (1-s) e_t + s (mean e + gamma(C) mean|log p|) + 6u loss, their mean
    gamma(M+2) of itself more, in the output's format where intermediates are.
    """
    import torch

    from kfuzz.numerics.acceptance import FINITE, NAN, POSITIVE_INF, around
    from kfuzz.numerics.bounds import Accumulation, gamma, growth
    from kfuzz.numerics.formats import FORMATS
    from kfuzz.numerics.indices import resolved
    from kfuzz.numerics.specials import intermediate_unit

    x, s = problem.tensors["logits"], problem.number("label_smoothing")
    ignored = int(problem.scalars["ignore_index"])
    kept = problem.tensors["target"] != ignored
    target = resolved(problem, "target", x.shape[-1])[0]
    at = target.unsqueeze(-1)
    # A label that is clamped to the ignored one: nobody says which comes first.
    contested = (kept & (target == ignored)).any(-1)
    unit = intermediate_unit(problem)
    acc = Accumulation.declared(problem.declaration, attribution=problem.attribution)
    coarse = unit > acc.format.unit
    held = problem.output if coarse else FORMATS["float32"]

    broken = ~(x.amax(-1) < float("inf")) | (x == float("-inf")).all(-1)
    log_p, error = _log_softmax(problem, torch.where(broken.unsqueeze(-1), 0.0, x))
    masked = log_p == float("-inf")
    size = torch.where(masked, 0.0, log_p).abs()
    loss, e = size.gather(-1, at).squeeze(-1), error.gather(-1, at).squeeze(-1)
    far = masked.gather(-1, at).squeeze(-1)  # an infinite loss
    unclear = far & (s == 1)  # 0 * Inf where it is not left out
    largest = loss
    if s:
        mean = size.mean(-1)
        spread = error.mean(-1) + acc.coefficient(x.shape[-1]) * mean
        loss, e = (1 - s) * loss + s * mean, (1 - s) * e + s * spread
        far = masked.any(-1)
        largest = torch.maximum(largest, size.sum(-1))
    e = e + STEPS * unit * loss

    finite = kept & ~broken & ~far
    count = kept.sum(-1)
    rows = int(count.max()) if count.numel() else 0
    # Partial sums are intermediates too.
    bound = growth if problem.attribution else gamma
    coefficient = max(acc.coefficient(rows + 2), bound(rows + 2, unit))
    total = torch.where(finite, loss, 0.0).sum(-1)
    total_e = torch.where(finite, e, 0.0).sum(-1)
    half = (total_e + coefficient * (total + total_e)) / count
    peak = torch.where(finite, largest, 0.0).sum(-1)
    limit = min(held.max_finite, acc.format.max_finite) / 2
    ambiguous = (peak > limit) | (count > limit) | contested

    is_nan = (kept & broken).any(-1) | (count == 0)
    is_inf = (kept & ~broken & far).any(-1) & ~is_nan
    y = torch.where(is_inf, float("inf"), total / count)
    y = torch.where(is_nan, float("nan"), y)
    classes = torch.where(is_inf, POSITIVE_INF, torch.where(is_nan, NAN, FINITE))
    either = is_inf & (kept & unclear).any(-1)
    classes = torch.where(either, POSITIVE_INF | NAN, classes).to(torch.uint8)
    return {"y": around(problem, y, half, classes=classes, ambiguous=ambiguous)}


def _log_softmax(problem: "Problem", x: Any) -> tuple[Any, Any]:
    """Return log-probabilities of rows without NaN and +Inf, and their error."""
    import torch

    from kfuzz.numerics.bounds import EXP_ARGUMENT, EXP_ERROR, U32, Accumulation
    from kfuzz.numerics.specials import intermediate_unit

    unit = intermediate_unit(problem)
    acc = Accumulation.declared(problem.declaration, attribution=problem.attribution)
    if x.numel() == 0:
        return x, x
    n = x.shape[-1]
    d = x - x.amax(-1, keepdim=True)
    depth = torch.where(d == float("-inf"), 0.0, d.abs())
    weight = torch.exp(d)
    total = weight.sum(-1, keepdim=True)
    # exp may be flushed to zero, and each later factor once more.
    flushed = 2.0**-126 if unit <= U32 else problem.output.min_normal
    rho = EXP_ARGUMENT * unit * depth + EXP_ERROR * unit
    spread = (
        (weight / total * rho).sum(-1, keepdim=True)
        + acc.coefficient(n - 1)
        + (-(-n // ONLINE_TILE) - 1) * (1 + EXP_ERROR) * unit
        + n * flushed
    )
    # A relative error of the sum of 1/2 or more says nothing about its logarithm.
    shifted = -torch.log1p(-spread.clamp(max=0.5))
    shifted = torch.where(spread < 0.5, shifted, float("inf"))
    log_total = torch.log(total)
    log_p = d - log_total
    error = (
        EXP_ARGUMENT * unit * depth
        + shifted
        + LOG_ERROR * unit * log_total
        + 2 * unit * torch.where(d == float("-inf"), 0.0, log_p.abs())
        + 2 * flushed
        # Float64's own exp and log are good to a few of its units.
        + 2.0**-48 * (1 + depth + log_total)
    )
    return log_p, error


cross_entropy = Operator(
    "cross_entropy",
    inputs={
        "logits": ks.tensors("N C"),
        "target": ks.indices("N", below="C", ignored="ignore_index"),
        "ignore_index": ks.scalar(-100, domain=(-1, 0)),
        "label_smoothing": ks.scalar(0.0, domain=(0.1, 0.5)),
    },
    oracle=reference,
    error=accept,
    reduced="C",
    empty_reduction=False,
    recentres=True,
    out_of_bounds=("raise", "clamp", "undefined"),
    tolerance=Tolerance(
        Structure.INTERVAL,
        "mean over M rows of (1-s) e_t + s (mean e + gamma(C, u) mean|log p|) + 6u "
        "loss, plus gamma(M+2, u) of the mean; e = 4u|d| + R + 5u log S + 2u|log p|, "
        "R = sum p rho + gamma(C-1, u) + 6u (ceil(C/16) - 1), rho = 4u|d| + 5u",
        "relative error of exp (2 ulp and its argument), of the sum in any order, of "
        "online rescaling in tiles of at least 16 becomes an absolute one of its "
        "logarithm; (max - x_t) + log S does not cancel, (max + log S) - x_t does; "
        'with intermediates="output" log-probabilities, losses and their partial '
        "sums have the unit of the output's format",
    ),
    special_values="a row with NaN or +Inf, or all -Inf, makes the mean NaN, -Inf at "
    "the target (with smoothing: anywhere) +Inf; ignored rows count for nothing, "
    "whatever they hold; NaN if all are ignored or there is none; undecided where "
    "sums of losses overflow, or a label is clamped to the ignored one",
)
