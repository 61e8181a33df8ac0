"""Reductions along a dimension, scans, orders, and what is made of log-sum-exp."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.aten.rows import describes
from kfuzz.contracts.gradients.rules import differentiable, grad
from kfuzz.contracts.operator import EVERY_DTYPE, MOVES, Operator, Structure
from kfuzz.contracts.operators.elementwise import ErrorModel, of_torch
from kfuzz.contracts.prose import bounded, defined
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import FLOAT8


def along(
    name: str, error_model: ErrorModel | None, text: str, **fields: Any
) -> Operator:
    """Return the operator that torch's function of its name along a dimension is.

    Args:
        name: its name.
        error_model: what a correct kernel may hold; None if that follows from forms,
            by default from torch's function.
        text: what torch's function gives.
        fields: others of the operator.
    """
    oracle = of_torch(name, text)
    if error_model is None:
        fields.setdefault("forms", {"": (oracle,)})
    return defined(
        name,
        inputs={"x": ks.tensors("*"), "dim": ks.dim(of="x")},
        oracle=oracle,
        error_model=error_model,
        **fields,
    )


def selected(*, greatest: bool) -> dict[str, Any]:
    """Return the bound of an extremum's gradient, and what its shares add up to."""

    def chosen(problem: nm.Problem) -> tuple[nm.Tensor, nm.Tensor, nm.Tensor]:
        """Return where a row's extremum is, how often, and the gradient of each."""
        dim, x = problem.axis(), problem.tensors["x"]
        top = x.amax(dim, keepdim=True) if greatest else x.amin(dim, keepdim=True)
        found = x == top
        return found, found.sum(dim, keepdim=True), grad(problem).unsqueeze(dim)

    def bound(problem: nm.Problem) -> nm.Acceptance:
        """Return grad_y at the extremum, any part of it at one of several."""
        import torch

        found, ties, spread = chosen(problem)
        several = found & (ties > 1)
        value = torch.where(found, spread / ties.clamp(min=1), 0.0)
        alone = torch.where(found, spread, 0.0)
        low = torch.where(several, alone.clamp(max=0), alone)
        high = torch.where(several, alone.clamp(min=0), alone)
        return nm.between(problem, torch.where(several, value, alone), low, high)

    def accept(problem: nm.Problem, outputs: nm.Tensors) -> nm.Tensors:
        """The shares of equal elements add up to grad_y."""
        found, ties, spread = chosen(problem)
        made = outputs["dx"].to(spread.dtype)
        total = made.where(found, made.new_zeros(())).sum(problem.axis(), keepdim=True)
        # Each share is rounded twice, and may be flushed.
        room = 2 * problem.output.unit * spread.abs() + problem.output.min_normal
        right = ((total - spread).abs() <= ties * room) | ~total.isfinite()
        return {"dx": right | (ties < 2) | ~found}

    return {"exact": {"x": bound}, "accept": accept}


def extremum(name: str, which: str) -> Operator:
    """Return the operator of a row's greatest, or least, element: torch's name of it.

    A maximum, or minimum, only selects.
    """
    text = f"torch.{name}(x, dim): the {which} element; NaN if the row holds one."
    oracle = of_torch(name, text)
    return along(
        name,
        lambda p: nm.around(p, oracle(p.tensors["x"], dim=p.axis()), 0.0),
        text,
        homogeneous={"x": 1},
        defaults=MOVES,
        dtypes=EVERY_DTYPE,
        empty_reduction=False,
        structure=Structure.EXACT,
        gradient=differentiable("x", lacks="dim", **selected(greatest=name == "amax")),
        aten=describes(name, "self=x dim=[dim]"),
    )


amax, amin = extremum("amax", "greatest"), extremum("amin", "least")


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
    aten=describes("argmax", "self=x dim"),
)


_log_softmax = of_torch("log_softmax", "torch.log_softmax(x, dim).")


def log_softmax_by_lse(x: Any, *, dim: int) -> Any:
    """The difference x - logsumexp(x), which cancels for large offsets."""
    import torch

    return x - torch.logsumexp(x, dim, keepdim=True)


log_softmax = along(
    "log_softmax",
    None,
    "torch.log_softmax(x, dim) with the row maximum subtracted.",
    forms={"": (_log_softmax,), "lse_form": (_log_softmax, log_softmax_by_lse)},
    algorithms={"lse_form": "x - (max + log S), which cancels for large offsets"},
    recentres=True,
    gradient=differentiable("x", stored="_log_softmax"),
    aten=describes("log_softmax.int", "self=x dim")
    + describes("_log_softmax", "self=x dim half_to_float=False"),
)


# Roundings behind the log-probabilities: 1 - s and s / C, the two products, their
# sum; with intermediates in the output's format also the sums over classes and
# rows as they are stored, the count and its division.
STEPS: Final = 6


def reference_cross_entropy(logits: Any, target: Any, **scalars: Any) -> Any:
    """(1-s) (-log p_t) + s/C sum_j (-log p_j) of each row; their mean, or their sum.

    Ignored rows are not counted; without a reduction they are 0.
    """
    import torch

    return _cross_entropy(torch.log_softmax(logits, -1), target, **scalars)


def cross_entropy_by_lse(logits: Any, target: Any, **scalars: Any) -> Any:
    """The same with log p = x - logsumexp(x), whose gradient has exp(x - logsumexp)."""
    return _cross_entropy(log_softmax_by_lse(logits, dim=-1), target, **scalars)


def _cross_entropy(
    log_p: Any,
    target: Any,
    *,
    ignore_index: int,
    label_smoothing: float,
    reduction: str = "mean",
) -> Any:
    import torch

    kept = target != ignore_index
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

    log_p, error, crowded = _log_probabilities(problem, safe, wanted)
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


def _log_probabilities(
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
    gradient=differentiable(
        "logits",
        "",
        # Libraries keep logsumexp(x), and have exp(x - logsumexp(x)) for a softmax.
        forms=(reference_cross_entropy, cross_entropy_by_lse),
        variants={
            "": ({"reduction": ("mean", "sum")}, ""),
            "_none": ({"reduction": ("none",)}, "N"),
        },
    ),
    aten=describes(
        "cross_entropy_loss",
        "self=logits target ignore_index label_smoothing",
        unfolded={"N": "* C *"},
    ),
)


cumsum = along(
    "cumsum",
    None,
    "torch.cumsum(x, dim).",
    homogeneous={"x": 1},
    gradient=differentiable("x", linear=True),
    aten=describes("cumsum", "self=x dim"),
)


logsumexp = along(
    "logsumexp",
    None,
    "torch.logsumexp(x, dim) with the row maximum subtracted.",
    recentres=True,
    gradient=differentiable("x", lacks="dim", stored="logsumexp"),
    aten=describes("logsumexp", "self=x dim=[dim]"),
)


mean = along(
    "mean",
    None,
    "torch.mean(x, dim).",
    homogeneous={"x": 1},
    gradient=differentiable("x", lacks="dim", linear=True),
    aten=describes("mean.dim", "self=x dim=[dim]"),
)


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


prod = along(
    "prod",
    accept_prod,
    "torch.prod(x, dim).",
    aten=describes("prod.dim_int", "self=x dim"),
)


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
    low = (log_p - relative).exp_().sub_(e.flushed).clamp_(min=0)
    high, value = relative.add_(log_p).exp_().add_(e.flushed), log_p.exp_()
    if nm.plainly_finite(x):
        return nm.between(problem, value, low, high, ambiguous=e.ambiguous.expand_as(x))
    plain = e.plain.expand_as(x)
    return nm.between(
        problem,
        torch.where(plain, value, nm.not_a_number(x)),
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
    gradient=differentiable("x", stored="_softmax"),
    aten=describes("softmax.int", "self=x dim")
    + describes("_softmax", "self=x dim half_to_float=False"),
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
    aten=describes("sort", "self=x dim descending"),
)


def accept_sum(problem: nm.Problem) -> nm.Acceptance:
    """Return sum +- gamma(n-1) sum|x| (Higham eq. 4.6), 0 where exact."""
    x, dim, acc = problem.tensors["x"], problem.axis(), problem.accumulation
    value = x.sum(dim)
    plain = nm.plainly_finite(value)  # of no sum is a term NaN or infinite
    finite = x if plain else nm.finite_or_zero(x)
    total = finite.abs().sum(dim)
    overflows = nm.overflow_in_some_order(finite, dim, acc, total)
    flush, data = problem.flushes, problem.format
    error = nm.sum_error(finite, dim, acc, flush=flush, data=data, total=total)
    if plain:
        return nm.around(problem, value, error, ambiguous=overflows)
    nan, plus, minus = (t.any(dim) for t in (x.isnan(), x == inf, x == -inf))
    classes = nm.sum_classes(nan, plus, minus, overflows)
    return classes.accepted(problem, finite.sum(dim), error)


sum = along(
    "sum",
    accept_sum,
    "torch.sum(x, dim).",
    homogeneous={"x": 1},
    dtypes=("float32", "float16", "bfloat16", *FLOAT8),
    gradient=differentiable("x", lacks="dim", linear=True),
    aten=describes("sum.dim_IntList", "self=x dim=[dim]"),
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
    aten=describes("topk", "self=x k dim largest"),
)


def reference_var(x: Any, *, dim: int, correction: int) -> Any:
    """Sum of squared differences from the mean, divided by n - correction."""
    centred = x - x.mean(dim, keepdim=True)
    n = x.shape[dim] - correction
    # Where means are merged the square of a difference may be twice the sum.
    total = (2 * (centred * centred)).sum(dim) / 2
    return total / n if n > 0 else total.new_full(total.shape, float("nan"))


def variance(x: nm.Tensor, *, dim: int, correction: int) -> nm.Tensor:
    """The variance, whose gradient is NaN, too, where it is."""
    made: nm.Tensor = reference_var(x, dim=dim, correction=correction)
    return made if x.shape[dim] > correction else x.sum(dim) * math.nan


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
    gradient=differentiable("x", lacks="dim", forms=(variance,)),
    aten=describes("var.correction", "self=x dim=[dim] correction"),
)
