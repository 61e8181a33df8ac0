"""layer_norm(x, weight, bias, eps): normalisation over the last dimension."""

from typing import TYPE_CHECKING, Any

from kfuzz import strategies as ks
from kfuzz.contracts.language import Operator, Structure, Tolerance

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem


def reference(x: Any, weight: Any, bias: Any, *, eps: float) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimension."""
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    variance = (centred * centred).mean(-1, keepdim=True)
    return centred / (variance + eps).sqrt() * weight + bias


def accept(problem: "Problem") -> "dict[str, Acceptance]":
    """Return the interval for the class of Welford's method.

    Emu = gamma(n + 2 + 2 ln(n+1)) mean|x|;
    Ev = gamma(2(n+6)) v + 2 gamma(n+2) sqrt(v) rms + Emu^2 + 2 eta;
    then r = (v + eps)^-1/2 as an interval, and the affine step in either of its
    usual forms, (x - mu) r g + b and x (r g) + (b - mu r g).
    """
    import math

    import torch

    from kfuzz.numerics.acceptance import NAN, around, classes_of
    from kfuzz.numerics.bounds import U64, Accumulation, gamma
    from kfuzz.numerics.formats import FORMATS
    from kfuzz.numerics.specials import intermediate_unit

    x = problem.tensors["x"]
    n, eps = x.shape[-1], problem.number("eps")
    g = _as_rows(problem, "weight", x, default=1.0)
    b = _as_rows(problem, "bias", x, default=0.0)
    if x.numel() == 0:
        return {"y": around(problem, x, 0.0)}
    unit = intermediate_unit(problem)
    acc = Accumulation.declared(problem.declaration, attribution=problem.attribution)
    broken = ~torch.isfinite(x).all(-1, keepdim=True)
    safe = torch.where(broken, torch.zeros_like(x), x)
    finite_g = torch.where(torch.isfinite(g), g, torch.zeros_like(g))
    finite_b = torch.where(torch.isfinite(b), b, torch.zeros_like(b))

    mu = safe.mean(-1, keepdim=True)
    d = safe - mu
    v = (d * d).mean(-1, keepdim=True)
    mean_abs = safe.abs().mean(-1, keepdim=True)
    rms = (v + mu * mu).sqrt()
    # Where intermediates are coarser than sums, mean and differences are rounded,
    # and what is stored between the steps has the range of the output's format.
    coarse = unit if unit > acc.format.unit else 0.0
    held = problem.output if coarse else FORMATS["float32"]
    flush = problem.declaration.subnormals != "preserve"
    # The smallest quantity that the squares can carry, or a flushed one.
    eta = held.min_normal if flush else held.min_subnormal
    depth = n + 2 + math.ceil(2 * math.log(n + 1))
    e_mu = acc.coefficient(depth) * mean_abs + coarse * mu.abs() + (n + 2) * eta
    e_v = (
        (acc.coefficient(2 * (n + 6)) + 5 * coarse) * v
        + 2 * acc.coefficient(n + 2) * v.sqrt() * rms
        + e_mu * e_mu
        + 2 * eta
        + gamma(4 * n + 8, U64) * rms * rms
    )
    r = (v + eps).rsqrt()
    least_eps = max(eps * (1 - 2 * unit) - (eta if coarse else 0.0), 0.0)
    r_high = (1 + 6 * unit) / ((v - e_v).clamp(min=0) + least_eps).sqrt()
    r_low = (1 - 6 * unit) / (v + e_v + eps * (1 + 2 * unit)).sqrt()
    e_r = torch.maximum(r_high - r, r - r_low)
    y = d * r * finite_g + finite_b
    error = (
        finite_g.abs()
        * (
            d.abs() * e_r
            + (r + e_r) * (e_mu + 3 * unit * (safe.abs() + mu.abs()))
        )
        + 6 * unit * (finite_g * d).abs() * r
        + 2 * unit * finite_b.abs()
        + 2 * unit * y.abs()
        # Products d r, d g and r g that underflow, weights that are flushed.
        + 2 * eta * (1 + (r + e_r) * finite_g.abs())
        + 2 * eta * (finite_g.abs() + r + d.abs() * r + safe.abs() + mu.abs())
    )  # fmt: skip
    error = error * (1 + 2.0**-20)  # second-order terms dropped above

    top = acc.format.max_finite
    biggest = safe.abs().amax(-1, keepdim=True)
    squares = (4 * safe * safe).sum(-1, keepdim=True)
    scaled = (r + e_r) * finite_g.abs() * (safe.abs() + mu.abs() + 1) + finite_b.abs()
    ambiguous = (n * biggest > top) | (squares > top) | (scaled > top)
    if coarse:
        stored = torch.maximum(torch.maximum(4 * biggest * biggest, r_high), scaled)
        ambiguous = ambiguous | (stored > held.max_finite)
    # An infinite weight times a normalised value near 0 has no agreed sign.
    unclear = torch.isinf(g).expand_as(y) & ~broken
    affine = torch.where(torch.isfinite(b), y, b.expand_as(y))
    spoiled = broken | torch.isnan(g) | torch.isnan(b)
    result = torch.where(spoiled, torch.full_like(y, float("nan")), affine)
    classes = torch.where(spoiled, NAN, classes_of(result)).to(torch.uint8)
    return {
        "y": around(
            problem, result, error,
            classes=classes,
            ambiguous=ambiguous.expand_as(y),
            undecidable=unclear,
        )
    }  # fmt: skip


def _as_rows(problem: "Problem", name: str, x: Any, *, default: float) -> Any:
    """Return a parameter as [members, 1, ..., n], or the default's constant."""
    import torch

    n = x.shape[-1]
    shape = (x.shape[0],) + (1,) * (x.dim() - 2) + (n,)
    if name not in problem.tensors:
        return torch.full(shape, default, dtype=torch.float64, device=x.device)
    return problem.tensors[name].reshape(shape)


layer_norm = Operator(
    "layer_norm",
    inputs={
        "x": ks.tensors("* N"),
        "weight": ks.tensors("N", role="weight", optional=True),
        "bias": ks.tensors("N", role="bias", optional=True),
        "eps": ks.scalar(1e-5, domain=(1e-5, 1e-6, 1e-12, 1e-3, 0.1)),
    },
    oracle=reference,
    error=accept,
    reduced="N",
    recentres=True,
    empty_reduction=False,
    tolerance=Tolerance(
        Structure.INTERVAL,
        "|g|(|d| Er + (r + Er)(Emu + 3u(|x| + |mu|))) + 6u|g d| r + 2u|b| + 2u|y|, "
        "Emu = gamma(n + 2 + 2 ln(n+1)) mean|x|, "
        "Ev = gamma(2(n+6)) v + 2 gamma(n+2) sqrt(v) rms + Emu^2",
        "the class of Welford's and the two-pass method, O(n u kappa) with kappa = "
        "rms / sqrt(v) (Chan, Golub, LeVeque 1983); the one-pass form E[x^2] - "
        "E[x]^2, O(n u kappa^2), lies outside",
    ),
    special_values="a row with NaN or an infinity is NaN throughout, other rows are "
    "unaffected; undecided where squares overflow or a weight is infinite",
)
