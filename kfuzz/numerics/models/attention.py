"""Attention: what softmax(scale q k^T + mask) v may be in a kernel's arithmetic.

With s the scores, m their row maximum, w = exp(s - m), l = sum w, p = w / l and
O = p v, u the unit of float32 arithmetic and R that of the declared accumulation:

* a score errs by Es = scale (R + 6u) |q||k|^T + 5u (|scale q k^T| + |mask|): products
  with the scale before or after, or with its root on either side; rounding of the
  scaled and of the masked score, in base e or 2;
* a weight errs relatively by rho = expm1(Es + 6u |s - m| + 5u + 6u T), T the number
  of rescalings in tiles of 16 keys or more: |x - m_old| + |m_old - m_new| =
  |x - m_new|, so that these add roundings only; the shift by any maximum cancels;
* numerator and denominator share these errors: with A = p rho |v| and r = p rho +
  R_l, |O' - O| <= (A + |O| r) / (1 - r);
* the product with v adds R p|v|, the division and rescalings 6u |O|.

A soft cap c makes c tanh(s / c) of a scaled score before any mask: errors pass through
the monotone function at the ends of their interval, and forms of tanh by exponentials
err by 12u c besides. A sink is one more score of each row, of a value that is 0. The
log-sum-exp m + log l errs by r / (1 - r) of the sum, 5u of its logarithm, and 6u |m| of
the maximum, which may be held in base 2 or before the scale.

Matrix units take operands in the data's format: with intermediates="output" the
weights, normalised or not, are rounded to it (u_o, and what underflows there); with
algorithm="stored_query" queries times the scale too, an error of u_o scale |q||k|^T;
with algorithm="unfused" both operands and the scores, as in a chain of library calls.
After Dao et al. 2022 (tiles); Blanchard, Higham, Higham 2021 (softmax).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import (
    FINITE,
    NAN,
    NEGATIVE_INF,
    POSITIVE_INF,
    Acceptance,
    Problem,
    around,
    sum_classes,
)
from kfuzz.numerics.accumulation import (
    EXP_ARGUMENT,
    EXP_ERROR,
    U32,
    U64,
    finite_or_zero,
    meet,
)
from kfuzz.numerics.formats import FORMATS
from kfuzz.numerics.models import functions
from kfuzz.numerics.models.dots import Dots, dots

# The smallest tile of keys for which an online rescaling is admitted.
ONLINE_TILE = 16
# Absolute error, in units, of tanh as 1 - 2 / (exp(2x) + 1) or 2 sigmoid(2x) - 1:
# (4 * 2|x| + 5) / 2 sech(x)^2 of the exponential, and 5 of each division and sum.
TANH_BY_EXP = 12
# Least normal number of float32: what a flushing exponential loses.
_LEAST = FORMATS["float32"].min_normal


@dataclass(frozen=True)
class Arithmetic:
    """Units of an attention kernel's steps, as declared.

    Attributes:
        fine: unit of softmax's own arithmetic.
        coarse: unit of stored weights; 0 where they stay in float32.
        operands: unit by which scaled queries, and keys, are off together.
        unfused: unit of stored scores; 0 where they stay in float32.
        least: what a stored weight may lose to underflow.
        normal: below this a stored weight is subnormal; 0 where none is stored.
        flush: whether subnormals may vanish.
    """

    fine: float
    coarse: float
    operands: float
    unfused: float
    least: float
    normal: float
    flush: bool

    @classmethod
    def declared(cls, problem: Problem) -> "Arithmetic":
        """Return the arithmetic that a problem's declaration names."""
        claims, out = problem.declaration, problem.output
        fine = U64 if claims.accumulator == "float64" else U32
        unfused, query = (claims.algorithm == a for a in ("unfused", "stored_query"))
        stored = claims.intermediates == "output" or unfused or query
        stored = stored and out.unit > fine
        flush = problem.flushes
        return cls(
            fine=fine,
            coarse=out.unit if stored else 0.0,
            operands=out.unit * (query + 2 * unfused) if stored else 0.0,
            unfused=out.unit if stored and unfused else 0.0,
            least=(out.min_normal if flush else out.min_subnormal) if stored else 0.0,
            normal=2 * out.min_normal if stored else 0.0,
            flush=flush,
        )


@dataclass(frozen=True)
class Scores:
    """The scores of every query and key, [members, B, H, S, T].

    Attributes:
        value: float64, scale q k^T + mask of the finite terms.
        error: float64, absolute.
        hidden: bool, masked by position or by -Inf in the mask.
        outside: bool, of a sequence of its own: never read.
        gone: bool, hidden, or -Inf by its own arithmetic: weight 0.
        nan_rows: bool [..., S, 1], a visible score is NaN or +Inf.
        unsure_rows: bool, what is hidden, and may be computed, is not finite.
        ambiguous_rows: bool, a score may overflow in some order.
    """

    value: Tensor
    error: Tensor
    hidden: Tensor
    outside: Tensor
    gone: Tensor
    nan_rows: Tensor
    unsure_rows: Tensor
    ambiguous_rows: Tensor


def attend(problem: Problem) -> Acceptance:
    """Return the acceptance of attention, [members, B, H, S, D].

    Keys and values of group g serve the heads g H/G to (g+1) H/G - 1.
    """
    return attend_with_lse(problem)["y"]


def attend_with_lse(
    problem: Problem, reach: tuple[Tensor, Tensor] | None = None
) -> dict[str, Acceptance]:
    """Return the acceptances of attention, "y", and of its log-sum-exp, "lse".

    The latter, [members, B, H, S], is stored in float32 whatever the data are; of a row
    without visible keys it is an infinity of either sign.

    Args:
        problem: with q, k, v, and maybe a mask and sinks.
        reach: in place of what `causal` and `window` say: where a query sees a key,
            and where both are of one sequence; broadcast to the scores.
    """
    q = problem.tensors["q"]
    repeats = q.shape[2] // max(problem.tensors["k"].shape[2], 1)
    k = problem.tensors["k"].repeat_interleave(repeats, dim=2)
    v = problem.tensors["v"].repeat_interleave(repeats, dim=2)
    arithmetic = Arithmetic.declared(problem)
    scores = _scores(problem, q, k, arithmetic, reach)
    sinks = problem.tensors.get("sinks")
    if sinks is not None:
        scores = _with_sinks(scores, sinks[:, None, :, None, None], arithmetic)
        v = torch.nn.functional.pad(v, (0, 0, 0, 1))
    return _weighted(problem, scores, v, arithmetic)


def _scores(
    problem: Problem,
    q: Tensor,
    k: Tensor,
    arithmetic: Arithmetic,
    reach: tuple[Tensor, Tensor] | None,
) -> Scores:
    given = problem.scalars["scale"]
    scale = 1 / math.sqrt(q.shape[-1]) if given is None else float(given)
    products = dots(problem, q, k.transpose(-1, -2))
    mask = problem.tensors.get("mask")
    if mask is None:
        mask = torch.zeros_like(products.value[:, :1, :1])
    else:
        mask = mask[:, None, None]
    outside = torch.zeros_like(products.value, dtype=torch.bool)
    if reach is None:
        hidden = _hidden(problem, products.value)
    else:
        outside = outside | ~reach[1]
        hidden = outside | ~reach[0]
    hidden = hidden | (mask == -math.inf)
    added = torch.where(torch.isfinite(mask), mask, torch.zeros_like(mask))
    scaled = scale * products.value
    cap = problem.scalars.get("softcap")
    size = scaled.abs() + added.abs()
    error = _score_error(q, k, products, scale, arithmetic)
    if cap is not None:
        error = error + _sum_error(scaled.abs(), arithmetic)
        scaled, error = _capped(problem, scaled, error, float(cap), arithmetic)
    # Of the mask too: behind the cap it is rounded as it stands.
    error = error + _sum_error(scaled.abs() + added.abs(), arithmetic)
    value = scaled + added
    special = ~products.classes.finite
    odd = mask.isnan() | (mask == math.inf)
    low = products.classes.reference == -math.inf
    visible = ~hidden
    # An operand that may vanish beside an infinity: -Inf or NaN.
    loose = special & (products.admitted != products.classes.admitted)
    nan, doubtful = special & ~low, low & loose
    if cap is not None:
        # What becomes of an infinite score, the cap or NaN, is the kernel's own.
        nan = products.classes.reference.isnan() & ~loose
        doubtful, low = special & ~nan, torch.zeros_like(low)
    nan_rows = (visible & (nan | odd)).any(-1, keepdim=True)
    unsure = (hidden & ~outside & (special | odd)) | (visible & doubtful)
    ambiguous = products.classes.ambiguous
    ambiguous = ambiguous | _beyond(problem, q, k, products, scale, size, arithmetic)
    ambiguous = ambiguous & ~outside
    return Scores(
        value=value,
        error=error,
        hidden=hidden,
        outside=outside,
        gone=hidden | (low & visible),
        nan_rows=nan_rows,
        unsure_rows=unsure.any(-1, keepdim=True),
        ambiguous_rows=ambiguous.any(-1, keepdim=True),
    )


def _beyond(
    problem: Problem,
    q: Tensor,
    k: Tensor,
    products: Dots,
    scale: float,
    size: Tensor,
    arithmetic: Arithmetic,
) -> Tensor:
    """Return where a scaled operand, or a score, leaves the range it is kept in."""
    single, stored = FORMATS["float32"].max_finite, problem.output.max_finite
    limit = min(single, stored) if arithmetic.unfused else single
    # A margin for the errors of both; log2(e) = 1.44... may be multiplied in too.
    found = 1.5 * torch.maximum(size, finite_or_zero(products.value).abs()) > limit
    limit = min(single, stored) if arithmetic.operands else single
    root = math.sqrt(scale)
    high_q = finite_or_zero(q).abs() * max(1.5 * scale, root) > limit
    high_k = finite_or_zero(k).abs() * root > limit
    found = found | high_q.any(-1, keepdim=True)
    return found | high_k.any(-1).unsqueeze(-2)


def _hidden(problem: Problem, like: Tensor) -> Tensor:
    """Return where causal mask or window hides a key from a query."""
    window = problem.scalars.get("window")
    seen = visible(
        *like.shape[-2:],
        causal=bool(problem.scalars["causal"]),
        window=None if window is None else int(window),
        bottom=problem.declaration.causal_alignment == "bottom_right",
        like=like,
    )
    return (~seen).expand_as(like)


def visible(
    queries: int,
    keys: int,
    *,
    causal: bool,
    window: int | None,
    bottom: bool,
    like: Tensor,
) -> Tensor:
    """Return bool [queries, keys], True where a query at i sees the key j.

    Causal queries see j <= i, those with a window keys at a distance |i - j| < window.

    Args:
        queries: their number.
        keys: their number.
        causal: whether later keys are hidden.
        window: how many keys a query sees to either side, its own included; None
            for all.
        bottom: whether the last query is at the last key, not the first at the first.
        like: gives the device.
    """
    query = torch.arange(queries, device=like.device)[:, None]
    key = torch.arange(keys, device=like.device)
    ahead = key - query - (keys - queries if bottom else 0)
    seen = ahead <= 0 if causal else torch.ones_like(ahead, dtype=torch.bool)
    return seen if window is None else seen & (ahead.abs() < window)


def _capped(
    problem: Problem, scaled: Tensor, error: Tensor, cap: float, arithmetic: Arithmetic
) -> tuple[Tensor, Tensor]:
    """Return the capped scores, cap tanh(s / cap), and their errors.

    Monotone: the errors of s, and of the division, 5u of it, move an end each.
    """
    unit = arithmetic.fine
    reach = error + (6 * unit + 2 * arithmetic.unfused) * scaled.abs()
    made = cap * torch.tanh(scaled / cap)
    ends = [cap * torch.tanh((scaled + e) / cap) - made for e in (reach, -reach)]
    moved = torch.maximum(ends[0].abs(), ends[1].abs())
    fast = functions.FAST_TANH_RELATIVE if problem.declaration.approx else 0.0
    own = TANH_BY_EXP * unit * cap + fast * made.abs() + 3 * arithmetic.unfused * cap
    return made, moved + own


def _with_sinks(scores: Scores, sinks: Tensor, arithmetic: Arithmetic) -> Scores:
    """Return the scores with one more for each row, [members, B, H, S, T + 1]."""

    def beside(of: Tensor, column: Tensor) -> Tensor:
        return torch.cat((of, column.expand(*of.shape[:-1], 1)), -1)

    held = finite_or_zero(sinks)
    error = (5 * arithmetic.fine + 3 * arithmetic.unfused) * held.abs()
    low = sinks == -math.inf
    return Scores(
        value=beside(scores.value, held),
        error=beside(scores.error, error),
        hidden=beside(scores.hidden, torch.zeros_like(low)),
        outside=beside(scores.outside, torch.zeros_like(low)),
        gone=beside(scores.gone, low),
        nan_rows=scores.nan_rows | sinks.isnan(),
        # Inf - Inf, or weights that vanish.
        unsure_rows=scores.unsure_rows | (sinks == math.inf),
        ambiguous_rows=scores.ambiguous_rows,
    )


def _score_error(
    q: Tensor, k: Tensor, products: Dots, scale: float, arithmetic: Arithmetic
) -> Tensor:
    fine = arithmetic.fine
    relative = 6 * fine + arithmetic.operands
    error = scale * (products.error + relative * products.magnitude)
    if arithmetic.operands:
        # Scaled operands that underflow where they are stored.
        tiny = finite_or_zero(k).abs().sum(-1).unsqueeze(-2)
        tiny = tiny + finite_or_zero(q).abs().sum(-1, keepdim=True)
        error = error + arithmetic.least * max(1.0, math.sqrt(scale)) * tiny
    return error


def _sum_error(size: Tensor, arithmetic: Arithmetic) -> Tensor:
    """Return what roundings of a score of this size, and of its terms, come to."""
    error = (5 * arithmetic.fine + 2.0**-50) * size
    if arithmetic.unfused:
        error = error + 3 * (arithmetic.unfused * size + arithmetic.least)
    return error


def _weighted(
    problem: Problem, scores: Scores, v: Tensor, arithmetic: Arithmetic
) -> dict[str, Acceptance]:
    """Return the acceptances of softmax(scores) v and of the rows' log-sum-exp."""
    acc = problem.accumulation
    keys = v.shape[-2]
    minus = torch.full_like(scores.value, -math.inf)
    s = torch.where(scores.gone, minus, scores.value)
    top = s.amax(-1, keepdim=True) if keys else s.sum(-1, keepdim=True) - math.inf
    void = top == -math.inf
    d = torch.where(scores.gone, minus, s - torch.where(void, 0.0, top))
    weight = torch.exp(d)
    total = weight.sum(-1, keepdim=True)

    fine, coarse = arithmetic.fine, arithmetic.coarse
    depth = torch.where(scores.gone, 0.0, d.abs())
    rescales = max(-(-keys // ONLINE_TILE) - 1, 0)
    halves = functions.FAST_EXP_ERROR if problem.declaration.approx else EXP_ERROR
    steps = halves * fine + rescales * (fine + halves * fine)
    steps += 3 * arithmetic.unfused
    argument = (EXP_ARGUMENT + 2) * fine + arithmetic.unfused
    shift = (scores.error + argument * depth) * (1 + 2.0**-10) + steps
    # w rho, formed so that a score with an error above its depth makes it infinite.
    divisor = torch.where(void, 1.0, total)
    excess = torch.where(scores.gone, 0.0, torch.exp(d + shift) - weight) / divisor

    p, fv = weight / divisor, finite_or_zero(v)
    size = fv.abs()
    out, spread = p @ fv, p @ size
    r = excess.sum(-1, keepdim=True) + acc.summation(keys) + coarse
    r = r + keys * _LEAST
    shared = excess @ size + out.abs() * r
    shared = torch.where(r < 1, shared / (1 - r), torch.full_like(shared, math.inf))
    fill = acc.products(keys, problem.format) + coarse
    own = fill * spread * (1 + r) + 6 * fine * out.abs()
    flush = arithmetic.flush
    small = torch.where(
        size < acc.operand_floor(problem.format, flush=flush), size, 0.0
    )
    lost = _LEAST * (1 + size.sum(-2, keepdim=True)) + acc.lost(keys + 1, flush=flush)
    lost = lost + p @ small + _underflow(p, arithmetic) @ size
    error = (shared + own + lost) * (1 + 2.0**-10) + 2.0**-48 * spread

    # An infinity in v counts where its weight cannot vanish.
    least = torch.exp(d - shift) / (divisor * (1 + r))
    held = least > 4 * max(_LEAST, arithmetic.normal)
    overflows = scores.ambiguous_rows
    if keys:
        # Weights are 1 at most, before the division by their sum.
        top_value = size.amax(-2, keepdim=True).clamp(min=1)
        limit = acc.operand_limit(problem.format)
        overflows = overflows | (keys * top_value > limit)
    faint = ~held & ~scores.gone
    classes = sum_classes(
        _meets(~scores.gone, v.isnan()) | scores.nan_rows,
        _meets(held, v == math.inf),
        _meets(held, v == -math.inf),
        overflows,
    )
    dropped = scores.gone & ~scores.outside
    unsure = _meets(dropped, ~torch.isfinite(v)) | _meets(faint, torch.isinf(v))
    unsure = (unsure | scores.unsure_rows) & ~scores.nan_rows
    reference = torch.where(classes.finite, out, classes.reference)
    admitted = classes.admitted
    if acc.splits(problem.format):
        split = _meets(~scores.gone, torch.isinf(v))
        admitted = torch.where(split, admitted | NAN, admitted)
    bare = void & ~scores.nan_rows
    void = bare.expand_as(out)
    policy = problem.declaration.masked_row
    nothing = {"zero": FINITE, "nan": NAN, "either": FINITE | NAN}[policy]
    admitted = torch.where(void, nothing, admitted).to(torch.uint8)
    reference = torch.where(void, math.nan if policy == "nan" else 0.0, reference)
    if policy == "nan":
        # Where there is no key, and nothing masked, a sum of nothing is 0.
        none = scores.outside.all(-1, keepdim=True) & void
        admitted = torch.where(none, FINITE | NAN, admitted).to(torch.uint8)
        reference = torch.where(none, 0.0, reference)
    made = around(
        problem,
        reference,
        torch.where(void, 0.0, error),
        classes=admitted,
        ambiguous=classes.ambiguous,
        undecided=unsure.expand_as(out),
    )
    return {"y": made, "lse": _log_sum(problem, scores, top, divisor, r, bare)}


def _log_sum(
    problem: Problem,
    scores: Scores,
    top: Tensor,
    total: Tensor,
    relative: Tensor,
    bare: Tensor,
) -> Acceptance:
    """Return the acceptance of top + log(total), the total in error by `relative`."""
    unit = U64 if problem.declaration.accumulator == "float64" else U32
    logs = torch.log(total)
    value = torch.where(bare, 0.0, top) + logs
    error = torch.where(relative < 0.5, relative / (1 - relative), math.inf)
    error = error + (functions.LOG_ERROR + 1) * unit * logs + unit * value.abs()
    error = error + 6 * unit * torch.where(bare, 0.0, top).abs() + 2.0**-48
    if problem.declaration.approx:
        error = (
            error + functions.FAST_LOG_ERROR * unit * logs + functions.FAST_LOG_ABSOLUTE
        )
    value = torch.where(bare, -math.inf, value)
    classes = torch.where(bare, NEGATIVE_INF | POSITIVE_INF, FINITE)
    nan = scores.nan_rows
    return around(
        problem,
        torch.where(nan, math.nan, value).squeeze(-1),
        error.squeeze(-1),
        # Of a score of +Inf the logarithm may be +Inf.
        classes=torch.where(nan, NAN | POSITIVE_INF, classes)
        .squeeze(-1)
        .to(torch.uint8),
        ambiguous=scores.ambiguous_rows.squeeze(-1),
        undecided=(scores.unsure_rows & ~nan).squeeze(-1),
        output=FORMATS["float32"],
    )


def _underflow(p: Tensor, arithmetic: Arithmetic) -> Tensor:
    """Return what weights lose that are stored as subnormals, or flushed."""
    below = p < arithmetic.normal
    return torch.where(below, p.clamp(max=arithmetic.least), torch.zeros_like(p))


def _meets(keys: Tensor, values: Tensor) -> Tensor:
    """Return [..., S, D] where some key of a query and its value both hold."""
    if not bool(values.any()):
        shape = (*keys.shape[:-1], values.shape[-1])
        return torch.zeros(shape, dtype=torch.bool, device=keys.device)
    return meet(keys, values)
