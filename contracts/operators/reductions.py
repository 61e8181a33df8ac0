"""Reductions along a dimension, scans, orders, and what is made of log-sum-exp."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Final

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import EVERY_DTYPE, MOVES, Operator, Structure
from kfuzz.contracts.operators.elementwise import ErrorModel, of_torch
from kfuzz.contracts.prose import bounded, defined
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import FLOAT8

if TYPE_CHECKING:
    import torch


def along(name: str, error_model: ErrorModel, text: str, **fields: Any) -> Operator:
    """Return the operator that torch's function of its name along a dimension is.

    Args:
        name: its name.
        error_model: what a correct kernel may hold.
        text: what torch's function gives.
        fields: others of the operator.
    """
    return defined(
        name,
        inputs={"x": ks.tensors("*"), "dim": ks.dim(of="x")},
        oracle=of_torch(name, text),
        error_model=error_model,
        **fields,
    )


def extremum(name: str, which: str) -> Operator:
    """Return the operator of a row's greatest, or least, element.

    Args:
        name: torch's name of it.
        which: "greatest" or "least".
    """

    def reference(x: Any, *, dim: int) -> Any:
        import torch

        return getattr(torch, name)(x, dim)

    def accept(problem: nm.Problem) -> nm.Acceptance:
        """Return the exact acceptance: a maximum, or minimum, only selects."""
        x = problem.tensors["x"]
        return nm.around(problem, reference(x, dim=problem.axis()), 0.0)

    reference.__doc__ = (
        f"torch.{name}(x, dim): the {which} element; NaN if the row holds one."
    )
    return Operator(
        name,
        inputs={"x": ks.tensors("*"), "dim": ks.dim(of="x")},
        oracle=reference,
        homogeneous={"x": 1},
        error_model=accept,
        defaults=MOVES,
        dtypes=EVERY_DTYPE,
        empty_reduction=False,
        **bounded(name, Structure.EXACT),
    )


amax = extremum("amax", "greatest")


amin = extremum("amin", "least")


def reference_argmax(x: Any, *, dim: int) -> Any:
    """torch.argmax(x, dim): the first index of the maximum, or of a NaN."""
    # An argmax of torch's own need not give the first of equals on every device.
    import torch

    found, index = _maxima(x, dim)
    return torch.where(found, index, x.shape[dim]).amin(dim)


def _maxima(x: Any, dim: int) -> tuple[Any, Any]:
    """Return where a row's maximum is, or its NaNs, and the indices along it."""
    import torch

    nan = x.isnan()
    has_nan = nan.any(dim, keepdim=True)
    found = torch.where(has_nan, nan, x == x.amax(dim, keepdim=True))
    shape = [1] * x.dim()
    shape[dim] = x.shape[dim]
    return found, torch.arange(x.shape[dim], device=x.device).reshape(shape)


def accept_argmax(problem: nm.Problem) -> nm.Acceptance:
    """Return the exact index, or from the first to the last where any may be named.

    Where subnormals may be flushed, a maximum below the least normal number ties
    with its neighbours, and the index is undecided.
    """
    import torch

    x, dim = problem.tensors["x"], problem.axis()
    undecided = None
    if problem.flushes:
        top = x.amax(dim)
        undecided = (top.abs() < problem.format.min_normal) & ~torch.isnan(top)
    first = reference_argmax(x, dim=dim).to(torch.float64)
    last = first
    if problem.declaration.ties == "any":
        found, index = _maxima(x, dim)
        last = torch.where(found, index, -1).amax(dim).to(torch.float64)
    return nm.between(
        problem, first, first, last,
        undecided=undecided, output=nm.INTEGERS["int64"],
    )  # fmt: skip


def relate_argmax(problem: nm.Problem, outputs: nm.Tensors) -> nm.Tensors:
    """The index names a maximum, or a NaN if there is one."""
    x, dim, y = problem.tensors["x"], problem.axis(), outputs["y"]
    n = x.shape[dim]
    found, _ = _maxima(x, dim)
    named = y.clamp(0, n - 1).unsqueeze(dim)
    return {"y": found.gather(dim, named).squeeze(dim) & (y >= 0) & (y < n)}


argmax = defined(
    "argmax",
    inputs={"x": ks.tensors("*"), "dim": ks.dim(of="x")},
    oracle=reference_argmax,
    homogeneous={"x": 0},
    integers=("y",),
    error_model=accept_argmax,
    relation=relate_argmax,
    defaults=MOVES,
    dtypes=EVERY_DTYPE,
    empty_reduction=False,
    structure=Structure.EXACT,
)


LSE_FORM: Final = "lse_form"


def accept_log_softmax(problem: nm.Problem) -> nm.Acceptance:
    """Return d - log S +- (u |d| + R + 6u log S + u |ref|), d = x - max.

    R bounds the relative error of S, and log costs 6 u of its result, held
    (`kfuzz.numerics.models.sums`). The form x - (max + log S) rounds the sum in
    brackets besides: 2 u |max + log S|, where declared.
    """
    import torch

    x, dim = problem.tensors["x"], problem.axis()
    if x.numel() == 0:
        return nm.between(problem, x, x, x)
    e = nm.exponentials(problem, x, dim)
    unit = e.unit
    masked = torch.isinf(e.depth)
    depth = torch.where(masked, torch.zeros_like(x), e.depth)
    y = depth - e.log_total
    error = e.error + unit * depth.abs() + (unit + 8 * nm.U64) * y.abs()
    if problem.declaration.algorithm == LSE_FORM:
        error = error + 2 * unit * (e.top.abs() + e.log_total)
    if problem.flushes:
        error = error + 3 * e.flushed  # x or its maximum, the difference, the result
    spoiled = ~e.plain.expand_as(x)
    result = torch.where(masked, torch.full_like(x, float("-inf")), y)
    result = torch.where(spoiled, torch.full_like(x, float("nan")), result)
    classes = torch.where(masked, nm.NEGATIVE_INF, nm.FINITE)
    classes = torch.where(spoiled, nm.NAN, classes).to(torch.uint8)
    return nm.between(
        problem, result, y - error, y + error,
        classes=classes, ambiguous=e.ambiguous.expand_as(x),
    )  # fmt: skip


log_softmax = along(
    "log_softmax",
    accept_log_softmax,
    "torch.log_softmax(x, dim) with the row maximum subtracted.",
    algorithms={LSE_FORM: "x - (max + log S), which cancels for large offsets"},
    recentres=True,
)


# Roundings behind the log-probabilities: 1 - s and s / C, the two products, their
# sum; with intermediates in the output's format also the sums over classes and
# rows as they are stored, the count and its division.
STEPS: Final = 6


def reference_cross_entropy(
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
    log_p = torch.log_softmax(logits, -1)
    at = torch.where(kept, target, 0).unsqueeze(-1)
    loss = -log_p.gather(-1, at).squeeze(-1)
    if label_smoothing:
        loss = (1 - label_smoothing) * loss - label_smoothing * log_p.mean(-1)
    if reduction == "mean":
        # That of no row is NaN, and so is its gradient.
        loss = loss * torch.where(kept.any(), 1.0, math.nan)
    loss = torch.where(kept, loss, 0.0)
    if reduction == "none":
        return loss
    return loss.sum() / kept.sum() if reduction == "mean" else loss.sum()


def accept_cross_entropy(
    problem: nm.Problem, doubt: Any = None, overflows: Any = None
) -> nm.Acceptance:
    """Return the interval of log-softmax losses, of their mean or of their sum.

    With d = x - max, S = sum exp(d), R the relative error of S and u the unit of the
    intermediates (`kfuzz.numerics.models.sums`), e = 4u|d| + R + 6u log S +
    2u|log p| bounds the error of a log-probability, be d scaled by log2(e) or not.
    A row has (1-s) e_t + s (mean e + gamma(C) mean|log p|) + 6u loss, their sum
    gamma(M) of itself more and their mean gamma(M+2), in the output's format where
    intermediates are.

    Most libraries form (max + log S) - x, which rounds the sum in brackets besides,
    2u |max + log S|, and where it is smoothed the mean of x is one: (gamma(C) + 4u)
    mean|x|.

    Where the logits are results themselves, their errors count too.

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
        logits = nm.finite_or_zero(safe).abs()
        spread = error.mean(-1) + summed * mean + (summed + 4 * unit) * logits.mean(-1)
        terms = torch.maximum(size.sum(-1), logits.sum(-1))
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
    problem: nm.Problem, x: Any, wanted: Callable[[Any], Any]
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
        + 2 * e.unit * (e.top.abs() + e.log_total)
        + 3 * e.flushed  # x or its maximum, the difference, the result
    )
    return log_p, error, e.ambiguous.squeeze(-1)


cross_entropy = defined(
    "cross_entropy",
    inputs={
        "logits": ks.tensors("N C"),
        "target": ks.indices("N", below="C", ignored="ignore_index"),
        "ignore_index": ks.scalar(-100, domain=(-1, 0)),
        "label_smoothing": ks.scalar(0.0, domain=(0.1, 0.5)),
        "reduction": ks.scalar("mean", domain=("sum", "none")),
    },
    oracle=reference_cross_entropy,
    error_model=accept_cross_entropy,
    chain=("log_softmax", "gather", "mean"),
    batch="N",
    reduced="C",
    empty_reduction=False,
    recentres=True,
    out_of_bounds=("raise", "clamp", "undefined"),
)


def accept_cumsum(problem: nm.Problem) -> nm.Acceptance:
    """Return s_i +- gamma(i) sum_{j<=i} |x_j|, 0 where the prefix sums exactly.

    Element i, counted from 0, takes i additions in any tree over the leaves 0 to i
    (Higham eq. 4.6). The total less a suffix cancels, and lies outside.
    """
    import torch

    dim = problem.axis()
    x = problem.tensors["x"].movedim(dim, -1)
    n = x.shape[-1]
    if x.numel() == 0:
        return nm.around(problem, problem.tensors["x"], 0.0)
    acc, flush = problem.accumulation, problem.flushes
    finite = nm.finite_or_zero(x)
    total, magnitude = finite.cumsum(-1), finite.abs().cumsum(-1)
    # Data that the accumulator cannot hold is rounded on the way in.
    data, narrow = problem.format, problem.format.precision > acc.format.precision
    growth = [
        acc.summation(i, extra=int(narrow)) + nm.gamma(i - 1, nm.U64)
        for i in range(1, n + 1)
    ]
    coefficient = torch.tensor(growth, dtype=torch.float64, device=x.device)
    coarse = acc.operand_error(data, operands=1)
    error = (coefficient + coarse) * magnitude
    least = acc.operand_floor(data, flush=False)
    if flush:
        least = max(least, acc.format.min_normal)
    if least:
        small = torch.where(finite.abs() < least, finite.abs(), 0.0)
        count = torch.arange(1, n + 1, device=x.device)
        error = error + small.cumsum(-1) + count * acc.lost(1, flush=flush)
    lowest = nm.lowest_bit_exponent(finite).cummin(-1).values
    exact = nm.fits_exactly(magnitude, lowest, acc, flush=flush)
    if not coarse:
        error = torch.where(exact, torch.zeros_like(error), error)

    def so_far(flags: torch.Tensor) -> torch.Tensor:
        return flags.to(torch.float64).cumsum(-1) > 0

    positive = finite.clamp(min=0).cumsum(-1)
    overflows = nm.can_overflow(positive, magnitude - positive, n, acc)
    classes = nm.terms_classes(x, so_far, overflows)
    sums = torch.where(classes.finite, total, classes.reference)
    parts = (sums, error, classes.admitted, classes.ambiguous)
    y, width, admitted, ambiguous = (t.movedim(-1, dim) for t in parts)
    return nm.around(problem, y, width, classes=admitted, ambiguous=ambiguous)


cumsum = along("cumsum", accept_cumsum, "torch.cumsum(x, dim).", homogeneous={"x": 1})


def accept_logsumexp(problem: nm.Problem) -> nm.Acceptance:
    """Return m + log S +- (R + 6u log S + u |m| + u |ref|).

    R bounds the relative error of S, and log costs 6 u of its result, held
    (`kfuzz.numerics.models.sums`); then m is rounded and added.
    """
    import torch

    x, dim = problem.tensors["x"], problem.axis()
    inf = float("inf")
    if x.shape[dim] == 0:
        nothing = torch.full_like(x.sum(dim), -inf)
        return nm.around(problem, nothing, 0.0)
    e = nm.exponentials(problem, x, dim)
    unit = e.unit
    finite = e.top + e.log_total
    error = e.error + unit * e.top.abs() + (unit + 8 * nm.U64) * finite.abs()
    if problem.flushes:
        error = error + 2 * e.flushed  # the maximum, and the sum of the two terms
    y = torch.where(e.void, torch.full_like(finite, -inf), finite)
    y = torch.where(e.plus, torch.full_like(finite, inf), y)
    y = torch.where(e.nan, torch.full_like(finite, float("nan")), y)
    return nm.around(
        problem, y.squeeze(dim), error.squeeze(dim),
        ambiguous=e.ambiguous.squeeze(dim),
    )  # fmt: skip


logsumexp = along(
    "logsumexp",
    accept_logsumexp,
    "torch.logsumexp(x, dim) with the row maximum subtracted.",
    recentres=True,
)


def accept_mean(problem: nm.Problem) -> nm.Acceptance:
    """Return s/n +- (gamma(n-1) + 6u) sum|x| / n, 0 where every form is exact.

    n - 1 additions and a division within 2 ulp (5 u), or a product with 1/n rounded,
    after the sum or before it. All are exact where the sum is, n is a power of two
    and no scaled term underflows: units that approximate a division hold reciprocals
    of powers of two exactly.
    """
    import torch

    x, dim = problem.tensors["x"], problem.axis()
    n = x.shape[dim]
    arithmetic = nm.RowArithmetic.declared(problem)
    acc, coarse, flush = arithmetic.acc, arithmetic.coarse, arithmetic.flush
    finite = nm.finite_or_zero(x)
    if n == 0:
        nothing = torch.full_like(finite.sum(dim), float("nan"))
        return nm.around(problem, nothing, 0.0)
    mean, magnitude = finite.sum(dim) / n, finite.abs().sum(dim)
    of_sum = nm.sum_error(finite, dim, acc, flush=flush, data=problem.format)
    # The division by n, or each product with 1/n, and their second-order terms.
    relative = (nm.DIVISION_ERROR + 1) * acc.format.unit + nm.U64
    # Where the sum is rounded on the way the store rounds a second time.
    twice = 2 * coarse * mean.abs()
    error = of_sum / n + relative * magnitude / n + twice + (n + 1) * arithmetic.eta
    if n & (n - 1) == 0:
        scaled = nm.lowest_bit_exponent(finite).amin(dim) - (n.bit_length() - 1)
        exact = nm.fits_exactly(magnitude / n, scaled, acc, flush=flush) & (of_sum == 0)
        error = torch.where(exact, twice, error)
    overflow = nm.overflow_in_some_order(finite, dim, acc)
    if coarse:
        overflow = overflow | (magnitude * 2 > arithmetic.held.max_finite)
    classes = nm.terms_classes(x, lambda t: t.any(dim), overflow)
    return classes.accepted(problem, mean, error)


mean = along("mean", accept_mean, "torch.mean(x, dim).", homogeneous={"x": 1})


def accept_prod(problem: nm.Problem) -> nm.Acceptance:
    """Return ref +- gamma(n-1) |ref|, plus n lost products where some underflow.

    A product that underflows loses eta, or lambda where it is flushed, which later
    factors enlarge by prod max(1, |x|) at most. 0 where no order rounds: the odd
    parts of all factors multiply to 2**p at most and no partial product leaves the
    range.
    """
    import torch

    x, dim = problem.tensors["x"], problem.axis()
    n = x.shape[dim]
    arithmetic = nm.RowArithmetic.declared(problem)
    acc, fmt = arithmetic.acc, arithmetic.acc.format
    finite = torch.where(torch.isfinite(x), x, torch.ones_like(x))
    product, grow, shrink, odd = nm.product(finite, dim)
    zero, infinite = (x == 0).any(dim), torch.isinf(x).any(dim)
    size = product.abs()

    # Logarithms are summed to far better than this.
    slack = 2.0**-20
    leaves_top = grow > math.log2(fmt.max_finite) - slack
    leaves_bottom = shrink < fmt.emin + slack
    least = fmt.min_normal if arithmetic.flush else fmt.min_subnormal
    lost = n * least * torch.exp2(grow.clamp(max=1000.0))
    # Factors that the accumulator cannot hold are rounded too.
    narrow = problem.format.precision > fmt.precision
    roundings = n - 1 + (n if narrow else 0)
    error = (acc.coefficient(roundings) + nm.gamma(2 * n, nm.U64)) * size
    error = error + torch.where(leaves_bottom, lost, 0.0)
    exact = (odd <= 2.0**acc.exact_bits) & ~leaves_bottom & ~leaves_top
    error = torch.where(exact | zero, torch.zeros_like(error), error)

    # Where partial products can both overflow and vanish anything may come out.
    unclear = leaves_top & leaves_bottom & ~zero & ~infinite
    # Large factors overflow in every order where no partial product vanishes and
    # the result itself lies beyond the range.
    surely = (size > 2 * fmt.max_finite) & ~leaves_bottom & ~zero
    ambiguous = torch.where(infinite, leaves_bottom, leaves_top & ~surely)
    odd_signs = (torch.signbit(x).sum(dim) % 2) == 1
    infinity = torch.where(odd_signs, -math.inf, math.inf).to(torch.float64)
    spoiled = x.isnan().any(dim) | (infinite & zero)
    value = torch.where(infinite, infinity, product)
    value = torch.where(spoiled, torch.full_like(value, math.nan), value)
    classes = torch.where(spoiled, nm.NAN, nm.classes_of(value)).to(torch.uint8)
    return nm.around(
        problem, value, error,
        classes=classes,
        ambiguous=ambiguous & ~spoiled,
        undecided=unclear & ~spoiled,
    )  # fmt: skip


prod = along("prod", accept_prod, "torch.prod(x, dim).")


def accept_softmax(problem: nm.Problem) -> nm.Acceptance:
    """Return the interval, formed in log space (after Blanchard, Higham, Higham 2021).

    With d = x - max, S = sum exp(d), p = exp(d) / S and u the unit of the
    intermediates: rho = 4 u |d| + 5 u bounds the relative error of exp(d);
    R = sum p rho + gamma(n-1) + T (u + 5 u) that of the sum, T the number of
    online rescalings; a result lies within exp(d - log S -/+ (rho + R + 5 u)),
    less one flushed subnormal.
    """
    import torch

    x, dim = problem.tensors["x"], problem.axis()
    if x.numel() == 0:
        return nm.between(problem, x, x, x)
    e = nm.exponentials(problem, x, dim)
    log_p = e.depth - e.log_total
    # A division, or a reciprocal and a product; float64's own exp, log and division
    # are good to a few of its units.
    relative = e.rho + (e.spread + (5 * e.unit + 2.0**-48))
    # Where an element is masked, the exponentials are 0.
    low = (torch.exp(log_p - relative) - e.flushed).clamp(min=0)
    high = torch.exp(log_p + relative) + e.flushed
    if nm.plainly_finite(x):
        return nm.between(
            problem, torch.exp(log_p), low, high, ambiguous=e.ambiguous.expand_as(x)
        )
    plain = e.plain.expand_as(x)
    return nm.between(
        problem,
        torch.where(plain, torch.exp(log_p), nm.not_a_number(x)),
        low,
        torch.where(e.depth == -inf, nm.zero(x), high),
        classes=torch.where(plain, nm.code(nm.FINITE, x), nm.code(nm.NAN, x)),
        ambiguous=e.ambiguous.expand_as(x),
    )


softmax = along(
    "softmax",
    accept_softmax,
    "torch.softmax(x, dim) with the row maximum subtracted.",
    recentres=True,
)


def reference_sort(x: Any, *, dim: int, descending: bool) -> Any:
    """torch.sort(x, dim, descending), equal elements in the order they had."""
    return nm.ordering.order(x, dim, descending=descending)


def _descends(problem: nm.Problem) -> bool:
    return bool(problem.scalars.get("descending", problem.scalars.get("largest")))


def accept_order(problem: nm.Problem) -> nm.Accepted:
    """Return exact values, and indices among equals; see `numerics.ordering`."""
    count = problem.axis("k") if "k" in problem.scalars else None
    return nm.ordering.accepted(problem, descending=_descends(problem), count=count)


def relate_order(problem: nm.Problem, outputs: nm.Tensors) -> nm.Tensors:
    """Each index names an element equal to the value in order there, none twice."""
    return nm.ordering.admitted(problem, outputs, descending=_descends(problem))


sort = defined(
    "sort",
    inputs={
        "x": ks.tensors("*"),
        "dim": ks.dim(of="x"),
        "descending": ks.scalar(False, (True,)),
    },
    oracle=reference_sort,
    homogeneous={"x": 1},
    integers=("indices",),
    error_model=accept_order,
    relation=relate_order,
    outputs=("values", "indices"),
    defaults=Declaration(subnormals="preserve", ties="any"),
    dtypes=EVERY_DTYPE,
    structure=Structure.EXACT,
)


def accept_sum(problem: nm.Problem) -> nm.Acceptance:
    """Return sum +- gamma(n-1) sum|x| (Higham eq. 4.6), 0 where exact."""
    x, dim, acc = problem.tensors["x"], problem.axis(), problem.accumulation
    finite = nm.finite_or_zero(x)
    overflows = nm.overflow_in_some_order(finite, dim, acc)
    classes = nm.terms_classes(x, lambda t: t.any(dim), overflows)
    flush, data = problem.flushes, problem.format
    error = nm.sum_error(finite, dim, acc, flush=flush, data=data)
    return classes.accepted(problem, finite.sum(dim), error)


sum = along(
    "sum",
    accept_sum,
    "torch.sum(x, dim).",
    homogeneous={"x": 1},
    dtypes=("float32", "float16", "bfloat16", *FLOAT8),
)


def reference_topk(x: Any, *, k: int, dim: int, largest: bool) -> Any:
    """torch.topk(x, k, dim, largest, sorted=True), of equal elements the first ones."""
    values, indices = nm.ordering.order(x, dim, descending=largest)
    return values.narrow(dim, 0, k), indices.narrow(dim, 0, k)


topk = replace(
    sort,
    name="topk",
    inputs={
        "x": ks.tensors("*"),
        "k": ks.scalar(1, (0, 2, 3, 4, 5, 8, 16, 17, 33, 64)),
        "dim": ks.dim(of="x"),
        "largest": ks.scalar(True, (False,)),
    },
    oracle=reference_topk,
    shape_class="k <= N",
    **bounded("topk", Structure.EXACT),
)


def reference_var(x: Any, *, dim: int, correction: int) -> Any:
    """Sum of squared differences from the mean, divided by n - correction."""
    centred = x - x.mean(dim, keepdim=True)
    n = x.shape[dim] - correction
    # Where means are merged the square of a difference may be twice the sum.
    total = (2 * (centred * centred)).sum(dim) / 2
    return total / n if n > 0 else total.new_full(total.shape, float("nan"))


var = defined(
    "var",
    inputs={
        "x": ks.tensors("*"),
        "dim": ks.dim(of="x"),
        "correction": ks.scalar(1, domain=(1, 0)),
    },
    oracle=reference_var,
    homogeneous={"x": 2},
    forms={"": (reference_var,)},
    recentres=True,
    subtracts_mean=True,
    empty_reduction=False,
)
