"""cross_entropy(logits, target, reduction): the loss of a classifier."""

from collections.abc import Callable
from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.operators.reductions.log_softmax import LSE_FORM
from kfuzz.contracts.prose import bounded

# Roundings behind the log-probabilities: 1 - s and s / C, the two products, their
# sum; with intermediates in the output's format also the sums over classes and
# rows as they are stored, the count and its division.
STEPS: Final = 6


def reference(
    logits: Any,
    target: Any,
    *,
    ignore_index: int,
    label_smoothing: float,
    reduction: str = "mean",
) -> Any:
    """(1-s) (-log p_t) + s/C sum_j (-log p_j) of each row; their mean, or their sum.

    Ignored rows are not counted; without a reduction they are 0.
    """
    import torch

    kept = target != ignore_index
    log_p = torch.log_softmax(logits[kept], -1)
    loss = -log_p.gather(-1, target[kept].unsqueeze(-1)).squeeze(-1)
    if label_smoothing:
        loss = (1 - label_smoothing) * loss - label_smoothing * log_p.mean(-1)
    if reduction == "none":
        return logits.new_zeros(kept.shape).masked_scatter(kept, loss)
    return loss.mean() if reduction == "mean" else loss.sum()


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the interval of log-softmax losses, of their mean or of their sum.

    With d = x - max, S = sum exp(d), R the relative error of S and u the unit of the
    intermediates (`kfuzz.numerics.models.log_sum_exp`), e = 4u|d| + R + 6u log S +
    2u|log p| bounds the error of a log-probability, be d scaled by log2(e) or not.
    A row has (1-s) e_t + s (mean e + gamma(C) mean|log p|) + 6u loss, their sum
    gamma(M) of itself more and their mean gamma(M+2), in the output's format where
    intermediates are.

    The form (max + log S) - x rounds the sum in brackets besides, 2u |max + log S|,
    and where it is smoothed the mean of x is one: (gamma(C) + 4u) mean|x|.
    """
    return accept_given(problem)


def accept_given(
    problem: "nm.Problem", doubt: Any = None, overflows: Any = None
) -> "nm.Acceptance":
    """Return the same where the logits are results themselves.

    Args:
        problem: with exact logits.
        doubt: the error e_j of each; that of log p_i grows by e_i + max_j e_j.
        overflows: bool, a kernel may hold an infinity or NaN in its place.
    """
    import torch

    x, s = problem.tensors["logits"], problem.number("label_smoothing")
    ignored = problem.axis("ignore_index")
    kept = problem.tensors["target"] != ignored
    target = nm.resolved(problem, "target", x.shape[-1])[0]
    at = target.unsqueeze(-1)
    # A label that is clamped to the ignored one: nobody says which comes first.
    contested = kept & (target == ignored)
    unit = nm.intermediate_unit(problem)
    acc = problem.accumulation
    coarse = unit > acc.format.unit
    held = problem.output if coarse else nm.FORMATS["float32"]

    if nm.plainly_finite(x):
        broken, safe = torch.zeros_like(kept), x
    else:
        broken = ~(x.amax(-1) < float("inf")) | (x == float("-inf")).all(-1)
        safe = torch.where(broken.unsqueeze(-1), 0.0, x)

    def wanted(given: Any) -> Any:  # without smoothing the label's own alone
        return given if s else given.gather(-1, at)

    log_p, error, crowded = _log_softmax(problem, safe, wanted)
    if doubt is not None:
        error = error + wanted(doubt) + doubt.amax(-1, keepdim=True)
    if overflows is not None:
        crowded = crowded | overflows.any(-1)
    masked = log_p == float("-inf")
    size = torch.where(masked, 0.0, log_p).abs()
    # Of the label; where it is masked, the loss is infinite.
    own = ((given.gather(-1, at) if s else given) for given in (size, error, masked))
    loss, e, far = (given.squeeze(-1) for given in own)
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
    if overflows is not None:
        # Another logit that a kernel holds as +Inf makes NaN of an infinite loss.
        unclear = unclear | (far & overflows.any(-1))
    is_nan, is_inf, either = kept & broken, kept & ~broken & far, kept & unclear
    total, total_e = torch.where(finite, loss, 0.0), torch.where(finite, e, 0.0)
    peak = torch.where(finite, largest, 0.0)
    limit = min(held.max_finite, acc.limit) / 2
    ambiguous = finite & crowded
    reduction = problem.scalars["reduction"]
    if reduction != "none":
        count = kept.sum(-1)
        # Partial sums are intermediates too.
        bound = nm.growth if problem.attribution else nm.gamma
        rows = count.tolist()
        of_rows = {n: n + 2 if reduction == "mean" else n for n in set(rows)}
        known = {
            n: max(acc.coefficient(steps), bound(steps, unit))
            for n, steps in of_rows.items()
        }
        coefficient = x.new_tensor([known[n] for n in rows])
        total, total_e, peak = total.sum(-1), total_e.sum(-1), peak.sum(-1)
        total_e = total_e + coefficient * (total + total_e)
        is_nan, is_inf = is_nan.any(-1), is_inf.any(-1)
        ambiguous = ambiguous.any(-1)
        either = either.any(-1) | (ambiguous if overflows is not None else False)
        contested = contested.any(-1)
        if reduction == "mean":
            total, total_e = total / count, total_e / count
            is_nan, ambiguous = is_nan | (count == 0), ambiguous | (count > limit)
    is_inf = is_inf & ~is_nan
    ambiguous = ambiguous | (peak > limit) | contested

    y = torch.where(is_inf, float("inf"), total)
    y = torch.where(is_nan, float("nan"), y)
    classes = torch.where(
        is_inf, nm.POSITIVE_INF, torch.where(is_nan, nm.NAN, nm.FINITE)
    )
    classes = torch.where(is_inf & either, nm.POSITIVE_INF | nm.NAN, classes)
    classes = classes.to(torch.uint8)
    return nm.around(problem, y, total_e, classes=classes, ambiguous=ambiguous)


def _log_softmax(
    problem: "nm.Problem", x: Any, wanted: Callable[[Any], Any]
) -> tuple[Any, Any, Any]:
    """Return log-probabilities of finite rows, their error, and where S overflows.

    A row may hold -Inf, but not throughout.

    Args:
        problem: gives the declaration.
        x: the rows.
        wanted: picks those elements of a row that are.
    """
    import torch

    if x.numel() == 0:
        return wanted(x), wanted(x), torch.zeros_like(x[..., 0], dtype=torch.bool)
    e = nm.exponentials(problem, x, -1)
    below = wanted(e.depth)
    depth = torch.where(torch.isinf(below), 0.0, below.abs())
    log_p = below - e.log_total
    error = (
        (nm.EXP_ARGUMENT * e.unit + 8 * nm.U64) * depth
        + e.error
        + (2 * e.unit + 8 * nm.U64) * (depth + e.log_total)
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
        "reduction": ks.scalar("mean", domain=("sum", "none")),
    },
    oracle=reference,
    error_model=accept,
    chain=("log_softmax", "gather", "mean"),
    batch="N",
    reduced="C",
    empty_reduction=False,
    algorithms={LSE_FORM: "(max + log S) - x_t, which cancels for large offsets"},
    recentres=True,
    out_of_bounds=("raise", "clamp", "undefined"),
    **bounded("cross_entropy", Structure.INTERVAL),
)
