"""Linear attention: what a state that decays and is updated may be in any algorithm.

A kernel steps through the sequence, or treats chunks of it by matrix products, with
decays as powers of e of differences of running sums. Notation: n_t the number of steps
so far, P_t = sum |g| over them, u the unit of float32, u_o that of operands that are
rounded to the data's format, R(n) that of a sum of n products as declared.

* A product of decays errs relatively by alpha_t = expm1(u ((2 n_t + 8) P_t + 8 n_t +
  16)): step by step (4|g| + 5) u of exp and u of the product for each; in chunks two
  running sums, each n_t u P_t, an exponential, and one factor per chunk.
* Each term scale q_d k_d w v of a result meets a sum over D, one over the steps, at
  most 2 n_t roundings of a state that is carried along, and, as operand of a matrix
  unit, at most 5: c_t = (1 + R(D)) (1 + R(n_t)) (1 + (2 n_t + 8) u) (1 + 5 u_o) - 1.
  Hence E = scale sum |q| |k| w |v| ((1 + alpha) (1 + c) - 1): every step is a sum of
  products, so that the bound holds term by term.
* What underflows is lost whole, l_o of an operand that is stored and l of a product in
  float32, of a decay or an exponential. It does not decay with the rest: with sums over
  the steps of |v|, V, of |k|, K, and of |k||v| and the first state, U, none of them
  decayed, a result loses sum_d (l_o U + (l_o + 2 l) V + l) + sum_d |q| (l_o (1 + V + K)
  + 3 n l + 2 l U), and the state l_o (V + K) + l (U + 3 n).
* The delta rule solves for u_t = beta_t (v_t - h_{t-1} k_t) first, h the decayed state,
  which is no sum of terms: I - beta k k^T has the norm f = max(1, |1 - beta |k|^2|),
  and with norms over D, column by column of the values, N_t = w N_{t-1} + |k_t||u_t|
  bounds the state, eps_t = c_t beta_t (|v_t| + |k_t| w N_{t-1}) what a step or a row of
  the triangular system is off (Higham, 2nd ed., theorem 8.5: the computed solution
  solves a system whose entries are off by gamma(n)). Z_t = f w Z_{t-1} + |k_t| eps_t
  carries it on: u is off by d_t = eps_t + beta_t |k_t| w Z_{t-1}, the state by
  F_t = f w F_{t-1} + |k_t| (d_t + c_t |u_t|) + 3 u N_t, the result by
  scale |q_t| (F_t + c_t N_t).
  What underflows is added to eps and to F, beside N without decays; nothing is claimed
  where the inverse of a chunk's system, or its products with keys, leave the range.

After Yang, Wang, Shen, Panda, Kim 2024 (gated linear attention) and Yang, Wang, Zhang,
Shen, Kim 2024 (the delta rule in chunks).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import NAN, Acceptance, Problem, around, classes_of
from kfuzz.numerics.accumulation import U32, U64, finite_or_zero
from kfuzz.numerics.formats import FORMATS

_SINGLE = FORMATS["float32"]


@dataclass(frozen=True)
class _Sequence:
    """The arguments of a recurrence, heads before steps; NaN and infinities as 0.

    Attributes:
        q: queries times the scale, [members, B, H, T, D].
        k: keys, likewise.
        v: values, [members, B, H, T, E].
        g: logarithms of decays, [members, B, H, T, D or 1].
        beta: strengths of updates, [members, B, H, T, 1]; 1 where there are none.
        state: what the state starts from, [members, B, H, D, E].
        problem: gives the declaration.
        own: relative error of what q and k are made of.
        late: by what queries are greater where the scale comes last.
        wide: bool [members, B, H], squares of q or k may overflow.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    beta: Tensor
    state: Tensor
    problem: Problem
    own: float
    late: float
    wide: Tensor

    @classmethod
    def of(cls, problem: Problem) -> "_Sequence":
        """Return those of a problem."""
        t = problem.tensors
        q, k, v = (finite_or_zero(_heads(t[n])) for n in ("q", "k", "v"))
        g = torch.zeros_like(k[..., :1])
        for name in ("decay", "gate"):
            if name in t:
                g = g + finite_or_zero(_heads(t[name]))
        beta = torch.ones_like(k[..., :1])
        if "beta" in t:
            beta = finite_or_zero(_heads(t["beta"]))
        state = k.new_zeros((*k.shape[:3], k.shape[-1], v.shape[-1]))
        if "state" in t:
            state = finite_or_zero(t["state"])
        given = problem.scalars["scale"]
        scale = k.shape[-1] ** -0.5 if given is None else float(given)
        own, wide = 0.0, torch.zeros(k.shape[:3], dtype=torch.bool, device=k.device)
        if problem.scalars.get("normalize"):
            for x in (q, k):
                squares = (x * x).sum(-1)
                wide = wide | (squares > _SINGLE.max_finite / 2).any(-1)
            q, k = normalized(q), normalized(k)
            # Half a sum of squares, its root, and a product stored as data.
            own = problem.accumulation.products(k.shape[-1], problem.format) + 8 * U32
            own += problem.output.unit if problem.output.unit > U32 else 0.0
        late = max(1.0, 1 / scale) if scale > 0 else 1.0
        return cls(scale * q, k, v, g, beta, state, problem, own, late, wide)

    @property
    def steps(self) -> range:
        """The steps of the sequence."""
        return range(self.k.shape[-2])

    @property
    def coarse(self) -> float:
        """Unit of operands that are rounded to the data's format; 0 where none is."""
        claims, out = self.problem.declaration, self.problem.output
        return out.unit if claims.intermediates == "output" and out.unit > U32 else 0.0

    def decays(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield of each step the decay and alpha, the error of any product of them."""
        total = torch.zeros_like(self.g.sum(-2))
        for n in self.steps:
            g = self.g[..., n, :]
            total = total + g.abs()
            count = n + 1
            alpha = (2 * count + 8) * total + 8 * count + 16
            yield torch.exp(g), torch.expm1(self.unit * alpha)

    @property
    def unit(self) -> float:
        """Unit of a step."""
        wide = self.problem.declaration.accumulator == "float64"
        return U64 if wide else U32 + U64

    def relative(self, count: int) -> float:
        """Return c, the error of a term after so many steps."""
        acc, data = self.problem.accumulation, self.problem.format
        steps = max(acc.products(count, data), acc.products(count, _SINGLE))
        c = (1 + acc.products(self.k.shape[-1], data)) * (1 + steps)
        c *= (1 + (2 * count + 8) * self.unit) * (1 + 5 * self.coarse)
        return float(c * (1 + self.own) ** 2 - 1)


def _heads(x: Tensor) -> Tensor:
    """Return [members, B, T, H, ...] as [members, B, H, T, ...], of one more axis."""
    x = x.transpose(2, 3)
    return x if x.dim() == 5 else x.unsqueeze(-1)


def normalized(x: Tensor) -> Tensor:
    """Return rows divided by their norm, as kernels do it: x rsqrt(sum x^2 + 1e-6)."""
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def linear(problem: Problem) -> dict[str, Acceptance]:
    """Return the acceptances of linear attention and of the state that it ends with.

    "y" [members, B, T, H, E] and "final_state" [members, B, H, D, E] in float32.
    """
    s = _Sequence.of(problem)
    value, size = s.state, s.state.abs()
    stored, single = _least(s)
    read = stored if problem.flushes else 0.0
    error = torch.zeros_like(size)
    made, errors, sizes = [], [], [size.amax(-2) if size.shape[-2] else size.sum(-2)]
    # Sums that do not decay: U, V and K.
    whole, of_v = size, torch.zeros_like(s.state[..., 0, :])
    of_k = torch.zeros_like(s.k.sum(-2))
    width = s.k.shape[-1]
    for n, (decay, alpha) in zip(s.steps, s.decays(), strict=True):
        w, a, c = decay.unsqueeze(-1), alpha.unsqueeze(-1), s.relative(n + 1)
        k, v, q = s.k[..., n, :, None], s.v[..., n, None, :], s.q[..., n, :]
        extended = k.abs() * v.abs()
        value, size = w * value + k * v, w * size + extended
        whole, of_v = whole + extended, of_v + s.v[..., n, :].abs()
        of_k = of_k + s.k[..., n, :].abs()
        relative = size * ((1 + a) * (1 + c) - 1)
        lost = 3 * (n + 1) * single + single * whole
        error = relative + lost + stored * of_v.unsqueeze(-2)
        error = error + read * of_k.unsqueeze(-1)
        made.append((q.unsqueeze(-2) @ value).squeeze(-2))
        meets = relative + lost + single * whole
        meets = meets + stored * (1 + of_v.unsqueeze(-2)) + read * of_k.unsqueeze(-1)
        held = (q.abs().unsqueeze(-2) @ meets).squeeze(-2)
        lost_q = stored * whole.sum(-2) + (stored + 2 * width * single) * of_v
        errors.append(held + lost_q + width * single)
        reach = (s.late * q.abs().unsqueeze(-2) @ size).squeeze(-2)
        over = reach > _SINGLE.max_finite / 2
        largest = size.amax(-2) if size.shape[-2] else of_v
        sizes.append(torch.where(over, math.inf, largest))
    ended = _heads(problem.tensors["k"]).isnan().any(-2).unsqueeze(-1)
    return _accepted(s, made, errors, sizes, value, error, ended)


def delta(problem: Problem) -> dict[str, Acceptance]:
    """Return the acceptances of the gated delta rule and of its last state.

    As of `linear`.
    """
    s = _Sequence.of(problem)
    value = s.state
    bound = s.state.norm(dim=-2)
    carried, off = torch.zeros_like(bound), torch.zeros_like(bound)
    stored, single = _least(s)
    # As long as they are added, and that no operand is larger: neither decays.
    whole, of_u, parts = bound, torch.zeros_like(bound), bound
    root = math.sqrt(max(s.k.shape[-1], 1))
    # What the inverse of a chunk's triangular system, and its products with keys, hold.
    extended = torch.zeros_like(bound)
    keys = s.k.abs()
    if keys.shape[-2]:
        met = (keys * keys.amax(-2, keepdim=True)).sum(-1).amax(-1)
        s = replace(s, wide=s.wide | (met > _SINGLE.max_finite / 2))
    made, errors, sizes = [], [], [bound]
    last = torch.zeros_like(bound)
    for n, (decay, alpha) in zip(s.steps, s.decays(), strict=True):
        c = (1 + alpha) * (1 + s.relative(n + 1)) - 1
        # Products of errors are left to a tenth of their sum.
        c = torch.where(c < 0.1, 1.1 * c, math.inf)
        k, v, q = s.k[..., n, :], s.v[..., n, :], s.q[..., n, :]
        beta, norm = s.beta[..., n, :], k.norm(dim=-1, keepdim=True)
        value = decay.unsqueeze(-1) * value
        u = beta * (v - (k.unsqueeze(-2) @ value).squeeze(-2))
        value = value + k.unsqueeze(-1) * u.unsqueeze(-2)
        strength = beta.abs() * norm
        growth = (1 - beta * norm * norm).abs().clamp(min=1)
        before, through = decay * bound, decay * growth
        # An operand that is lost meets what does not decay.
        lost = root * (stored * (1 + whole + norm) + single * norm * whole)
        step = c * (beta.abs() * v.abs() + strength * before) + lost
        carried_before = strength * decay * carried
        carried = through * carried + norm * step
        bound = before + norm * u.abs()
        whole, of_u = whole + norm * u.abs(), of_u + u.abs()
        off = through * off + norm * (step + carried_before + c * u.abs())
        off = off + 3 * s.unit * bound
        off = off + root * (stored * u.abs() + single * (1 + whole))
        made.append((q.unsqueeze(-2) @ value).squeeze(-2))
        length = q.norm(dim=-1, keepdim=True)
        lost = root * (stored * (1 + whole) + 2 * single) + stored * of_u
        meets = off + c * bound + root * (stored + single * (whole + of_u))
        errors.append(length * meets + lost)
        given, inverse = beta.abs() * v.abs(), strength * extended
        parts = through * parts + norm * given
        extended = through * extended + norm * (1 + strength)
        reach = s.late * length * (bound + parts + off)
        over = (reach > _SINGLE.max_finite / 2) | ~(parts + extended < math.inf)
        largest = bound + given + strength * parts + off + inverse
        sizes.append(torch.where(over, math.inf, largest))
        last = off + c * bound + root * stored * of_u
    final = last.unsqueeze(-2).expand_as(value)
    ended = _heads(problem.tensors["k"]).isnan().flatten(3).any(-1)[..., None, None]
    return _accepted(s, made, errors, sizes, value, final, ended)


def _least(s: _Sequence) -> tuple[float, float]:
    """Return what a stored operand loses to underflow, and a product in float32."""
    out, flush = s.problem.output, s.problem.flushes
    single = _SINGLE.min_normal if flush else _SINGLE.min_subnormal
    if not s.coarse:
        return single, single
    return (out.min_normal if flush else out.min_subnormal), single


def _accepted(
    s: _Sequence,
    made: list[Tensor],
    errors: list[Tensor],
    sizes: list[Tensor],
    state: Tensor,
    state_error: Tensor,
    ended: Tensor,
) -> dict[str, Acceptance]:
    """Return both acceptances, special values by class.

    A NaN query, or an earlier NaN key or value, makes NaN; where else something of a
    head is not finite, kernels differ: masked by a product with 0, or never read.
    """
    t = s.problem.tensors
    q, k, v = (_heads(t[n]) for n in ("q", "k", "v"))
    wild = (~torch.isfinite(k)).flatten(3).any(-1)[..., None]
    for name in ("decay", "gate", "beta"):
        if name in t:
            wild = (
                wild | (~torch.isfinite(_heads(t[name]))).flatten(3).any(-1)[..., None]
            )
    column = wild | (~torch.isfinite(v)).any(-2)
    if "state" in t:
        column = column | (~torch.isfinite(t["state"])).any(-2)
    nan = k.isnan().any(-1, keepdim=True) | v.isnan()
    # Of the state, where a NaN key or value meets it.
    ended = (ended | v.isnan().any(-2).unsqueeze(-2)).expand_as(state)
    single = _SINGLE.max_finite
    limit = min(single, s.problem.output.max_finite) if s.coarse else single
    if not made:
        y = s.v
        error, high = torch.zeros_like(y), torch.zeros_like(y, dtype=torch.bool)
        over = torch.zeros_like(column)
    else:
        y, error = torch.stack(made, -2), torch.stack(errors, -2)
        # The first is that of the state before the first step.
        high = (torch.stack(sizes, -2).cummax(-2).values > limit / 2)[..., 1:, :]
        # A later key of a chunk too meets a query, and is taken off by a factor of 0.
        for keys, most in ((s.k.abs().cummax(-2).values, limit),
                           (s.k.abs().amax(-2, keepdim=True), single)):  # fmt: skip
            met = (s.late * s.q.abs() * keys).sum(-1, keepdim=True)
            high = high | (met > most / 2)
        high = high | (y.abs() + error > single)
        over = high.any(-2) | s.wide.unsqueeze(-1)
        high = high | over.unsqueeze(-2)
        nan = nan.cumsum(-2) > 0
    nan = nan | q.isnan().any(-1, keepdim=True)
    unsure = (column.unsqueeze(-2) | torch.isinf(q).any(-1, keepdim=True)) & ~nan
    y = torch.where(nan, math.nan, y)
    final = torch.where(ended, math.nan, state)
    parts = torch.broadcast_tensors(y, error, high, unsure)  # type: ignore[no-untyped-call]
    ys = [x.transpose(2, 3) for x in parts]
    classes = torch.where(ys[0].isnan(), NAN, classes_of(ys[0])).to(torch.uint8)
    unknown = column.unsqueeze(-2) & ~ended
    return {
        "y": around(
            s.problem, ys[0], ys[1], classes=classes, ambiguous=ys[2],
            undecided=ys[3],
        ),
        "final_state": around(
            s.problem, final, state_error, undecided=unknown,
            ambiguous=over.unsqueeze(-2).expand_as(state), output=_SINGLE,
        ),
    }  # fmt: skip
