"""add_rms_norm(x, residual, weight, eps): a residual addition and its RMS norm."""

from dataclasses import replace
from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any, residual: Any, weight: Any = None, *, eps: float) -> Any:
    """(h / sqrt(mean(h^2) + eps) * weight, h) with h = x + residual."""
    h = x + residual
    y = h / ((h * h).mean(-1, keepdim=True) + eps).sqrt()
    return y if weight is None else y * weight, h


def accept(problem: "nm.Problem") -> "nm.Accepted":
    """Return y as the RMS norm of h or of the h that is stored, and h exactly.

    h is one rounding of the exact sum: an addition in float32 and the store round as
    one does, because 24 >= 2 p + 2 for 16-bit formats (Figueroa 1995). Kernels
    normalise what they hold in registers or what they have stored, and some take the
    mean square of one and scale the other: all lie in the hull of both.
    """
    import torch

    x, residual = problem.tensors["x"], problem.tensors["residual"]
    weight = nm.row_parameter(problem, "weight", x, default=1.0)
    h = x + residual
    arithmetic = nm.RowArithmetic.declared(problem)
    least = arithmetic.acc.format.min_normal
    lost = torch.zeros_like(h)
    for t in (x, residual, h) if arithmetic.flush else ():
        lost = lost + torch.where(t.abs() < least, t.abs(), 0.0)
    if problem.attribution:  # to sums that are rounded to a narrower format
        lost = lost + arithmetic.acc.format.unit * nm.finite_or_zero(h).abs()
    store = problem.declaration.store
    modes = ("rd", "ru") if store == "stochastic" else (store,)
    stored = [nm.round_to(h, problem.output, mode) for mode in modes]
    held = torch.stack([nm.finite_or_zero(t) for t in (h, *stored)])
    rows = nm.rms.Rows(h, held.amin(0) - lost, held.amax(0) + lost)
    y = nm.rms.rms_scaled(problem, rows, weight)
    # A sum that is finite and stored as an infinity spoils the row of some kernels.
    overflows = torch.stack([torch.isinf(t) for t in stored]).any(0)
    beyond = (overflows & torch.isfinite(h)).any(-1, True)
    beyond = beyond & ~y.reference.isnan()
    return {
        "y": replace(y, ambiguous=y.ambiguous | beyond),
        "h": nm.around(problem, h, lost, classes=nm.classes_of(h)),
    }


add_rms_norm = Operator(
    "add_rms_norm",
    inputs={
        "x": ks.tensors("* N"),
        "residual": ks.tensors("* N"),
        "weight": ks.tensors("N", role="weight", optional=True),
        "eps": ks.scalar(1e-6, domain=(1e-6, 1e-5, 1e-12, 1e-3)),
    },
    oracle=reference,
    error_model=accept,
    chain=("add", "rms_norm"),
    outputs=("y", "h"),
    reduced="N",
    empty_reduction=False,
    **bounded("add_rms_norm", Structure.INTERVAL),
)
