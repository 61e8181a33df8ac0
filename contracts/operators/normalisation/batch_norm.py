"""batch_norm(x, mean, var, weight, bias, eps): with given statistics (inference)."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(
    x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, *, eps: float
) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias for each channel."""
    centred = x - mean[:, None]
    y = centred / (var + eps).sqrt()[:, None]
    y = y if weight is None else y * weight[:, None]
    return y if bias is None else y + bias[:, None]


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the affine step with r = (var + eps)^-1/2 as an interval.

    Either form, (x - mu) r g + b and x (r g) + (b - mu r g), is admitted; eps is a
    rounded constant (`kfuzz.numerics.models.normalisation`).
    """
    import torch

    x, eps = problem.tensors["x"], problem.number("eps")
    if x.numel() == 0:
        return nm.around(problem, x, 0.0)

    def per_channel(name: str, default: float) -> torch.Tensor:
        given = problem.tensors.get(name)
        if given is None:
            given = torch.full_like(x[:, 0, :, 0], default)
        return given[:, None, :, None]

    mean, var = per_channel("mean", 0.0), per_channel("var", 1.0)
    g, b = per_channel("weight", 1.0), per_channel("bias", 0.0)
    a = nm.RowArithmetic.declared(problem)
    # The sum var + eps is rounded, and a subnormal variance may be flushed.
    doubt = 2 * a.unit * (var.abs() + eps) + 2 * a.eta
    s = var + eps
    root = nm.inverse_root(
        torch.where(s > 0, var, torch.zeros_like(var)),
        torch.where(s > doubt, var - doubt, torch.zeros_like(var)),
        torch.where(s > doubt, var + doubt, torch.zeros_like(var)),
        eps,
        a,
    )
    step = nm.affine(
        nm.finite_or_zero(x), nm.finite_or_zero(mean), 0.0, root,
        nm.finite_or_zero(g), nm.finite_or_zero(b), a,
    )  # fmt: skip
    y = (x - mean) * torch.where(s < 0, float("nan"), root.exact) * g + b
    classes = torch.where(y.isnan(), nm.NAN, nm.classes_of(y)).to(torch.uint8)
    held = a.held.max_finite
    far = 2 * (nm.finite_or_zero(x).abs() + nm.finite_or_zero(mean).abs())
    ambiguous = (step.reach > held) | (2 * root.high > held) | (far > held)
    # The differences scaled by one of the two factors.
    ambiguous = ambiguous | (far * root.high > held)
    ambiguous = ambiguous | (far * nm.finite_or_zero(g).abs() > held)
    # A scale that vanishes on the way turns an infinity into NaN.
    vanishing = (root.low * g.abs() < 2 * a.eta) | (g.abs() < 2 * a.eta)
    ambiguous = ambiguous | (torch.isinf(x) & vanishing)
    # Near 0 the root has no agreed value; the two forms differ for these infinities.
    unclear = (s.abs() <= doubt) | torch.isinf(g) | torch.isinf(var)
    unclear = unclear | (torch.isinf(mean) & torch.isinf(b))
    return nm.around(
        problem, y, step.error,
        classes=classes,
        ambiguous=ambiguous.expand_as(y),
        undecidable=unclear.expand_as(y) & ~y.isnan(),
    )  # fmt: skip


batch_norm = Operator(
    "batch_norm",
    inputs={
        "x": ks.tensors("B C L"),
        "mean": ks.tensors("C", role="bias"),
        "var": ks.tensors("C", role="variance"),
        "weight": ks.tensors("C", role="weight", optional=True),
        "bias": ks.tensors("C", role="bias", optional=True),
        "eps": ks.scalar(1e-5, domain=(1e-5, 1e-6, 1e-12, 1e-3, 0.1)),
    },
    oracle=reference,
    error_model=accept,
    batch="B",
    **bounded("batch_norm", Structure.INTERVAL),
)
