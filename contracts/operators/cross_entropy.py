"""cross_entropy(logits, target): the mean loss of a classifier."""

from typing import TYPE_CHECKING, Any, Final

from kfuzz import strategies as ks
from kfuzz.contracts.language import Operator, Structure, Tolerance
from kfuzz.contracts.operators.log_softmax import LSE_FORM

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem

# Roundings behind the log-probabilities: 1 - s and s / C, the two products, their
# sum; with intermediates in the output's format also the sums over classes and
# rows as they are stored, the count and its division.
STEPS: Final = 6


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

    With d = x - max, S = sum exp(d), R the relative error of S and u the unit of the
    intermediates (`kfuzz.numerics.log_sum_exp`), e = 4u|d| + R + 6u log S +
    2u|log p| bounds the error of a log-probability, be d scaled by log2(e) or not.
    A row has (1-s) e_t + s (mean e + gamma(C) mean|log p|) + 6u loss, their mean
    gamma(M+2) of itself more, in the output's format where intermediates are.

    The form (max + log S) - x rounds the sum in brackets besides, 2u |max + log S|,
    and where it is smoothed the mean of x is one: (gamma(C) + 4u) mean|x|.
    """
    import torch

    from kfuzz.numerics.acceptance import FINITE, NAN, POSITIVE_INF, around
    from kfuzz.numerics.bounds import Accumulation, gamma, growth
    from kfuzz.numerics.formats import FORMATS
    from kfuzz.numerics.indices import resolved
    from kfuzz.numerics.specials import intermediate_unit

    x, s = problem.tensors["logits"], problem.number("label_smoothing")
    ignored = problem.axis("ignore_index")
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
    safe = torch.where(broken.unsqueeze(-1), 0.0, x)
    log_p, error, crowded = _log_softmax(problem, safe)
    masked = log_p == float("-inf")
    size = torch.where(masked, 0.0, log_p).abs()
    loss, e = size.gather(-1, at).squeeze(-1), error.gather(-1, at).squeeze(-1)
    far = masked.gather(-1, at).squeeze(-1)  # an infinite loss
    unclear = far & (s == 1)  # 0 * Inf where it is not left out
    largest = loss
    if s:
        mean = size.mean(-1)
        summed = acc.coefficient(x.shape[-1])
        spread, terms = error.mean(-1) + summed * mean, size.sum(-1)
        if problem.declaration.algorithm == LSE_FORM:
            logits = torch.where(torch.isfinite(safe), safe, 0.0).abs()
            spread = spread + (summed + 4 * unit) * logits.mean(-1)
            terms = torch.maximum(terms, logits.sum(-1))
        loss, e = (1 - s) * loss + s * mean, (1 - s) * e + s * spread
        far = masked.any(-1)
        largest = torch.maximum(largest, terms)
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
    limit = min(held.max_finite, acc.limit) / 2
    ambiguous = (peak > limit) | (count > limit) | (finite & crowded).any(-1)
    ambiguous = ambiguous | contested

    is_nan = (kept & broken).any(-1) | (count == 0)
    is_inf = (kept & ~broken & far).any(-1) & ~is_nan
    y = torch.where(is_inf, float("inf"), total / count)
    y = torch.where(is_nan, float("nan"), y)
    classes = torch.where(is_inf, POSITIVE_INF, torch.where(is_nan, NAN, FINITE))
    either = is_inf & (kept & unclear).any(-1)
    classes = torch.where(either, POSITIVE_INF | NAN, classes).to(torch.uint8)
    return {"y": around(problem, y, half, classes=classes, ambiguous=ambiguous)}


def _log_softmax(problem: "Problem", x: Any) -> tuple[Any, Any, Any]:
    """Return log-probabilities of finite rows, their error, and where S overflows.

    A row may hold -Inf, but not throughout.
    """
    import torch

    from kfuzz.numerics.bounds import EXP_ARGUMENT, U64
    from kfuzz.numerics.log_sum_exp import exponentials

    if x.numel() == 0:
        return x, x, torch.zeros_like(x[..., 0], dtype=torch.bool)
    e = exponentials(problem, x, -1)
    masked = torch.isinf(e.depth)
    depth = torch.where(masked, 0.0, e.depth.abs())
    log_p = e.depth - e.log_total
    error = (
        (EXP_ARGUMENT * e.unit + 8 * U64) * depth
        + e.error
        + (2 * e.unit + 8 * U64) * (depth + e.log_total)
        + 3 * e.flushed  # x or its maximum, the difference, the result
    )
    if problem.declaration.algorithm == LSE_FORM:
        error = error + 2 * e.unit * (e.top.abs() + e.log_total)
    return log_p, error, e.ambiguous.squeeze(-1)


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
    algorithms={LSE_FORM: "(max + log S) - x_t, which cancels for large offsets"},
    recentres=True,
    out_of_bounds=("raise", "clamp", "undefined"),
    tolerance=Tolerance(
        Structure.INTERVAL,
        "mean over M rows of (1-s) e_t + s (mean e + gamma(C, u) mean|log p|) + 6u "
        "loss, plus gamma(M+2, u) of the mean; e = 4u|d| + R + 6u log S + 2u|log p|, "
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
