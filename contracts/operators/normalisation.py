"""Normalisations of rows, groups and channels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.aten.rows import describes
from kfuzz.contracts.gradients.rules import (
    Given,
    Gradients,
    both,
    differentiable,
    grad,
)
from kfuzz.contracts.operator import Structure
from kfuzz.contracts.operators.reductions import accept_sum
from kfuzz.contracts.prose import bounded, defined


def summed(
    taken: Callable[[nm.Problem], nm.Tensor], dim: int
) -> Callable[[nm.Problem], nm.Acceptance]:
    """Return the bound of a sum along a dimension, in any order."""
    return lambda problem: accept_sum(
        replace(problem, tensors={"x": taken(problem)}, scalars={"dim": dim})
    )


def _normalised(x: nm.Tensor, wg: nm.Tensor, eps: float) -> tuple[nm.Tensor, nm.Tensor]:
    """Return normalised rows and their gradient.

    Two forms of either: differences first, or b x + c with sums of x itself.

    Args:
        x: [..., n].
        wg: the gradient of the normalised rows.
        eps: the constant added to the variance.
    """
    n = x.shape[-1]
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    r = ((centred * centred).mean(-1, keepdim=True) + eps).rsqrt()
    z = both(centred * r, x * r - mean * r)
    one = r * (wg - wg.mean(-1, keepdim=True) - z * (wg * z).mean(-1, keepdim=True))
    of_x, total = (wg * x).sum(-1, keepdim=True), wg.sum(-1, keepdim=True)
    b = (total * mean - of_x) * (r * r * r) / n
    c = -(b * mean) - total * r / n
    return z, both(one, r * wg + b * x + c)


def _rows(g: Given, x: nm.Tensor) -> nm.Tensor:
    return x.reshape(-1, g["x"].shape[-1])


def _of_rows(problem: nm.Problem) -> nm.Tensor:
    return grad(problem).flatten(1, -2)


def _of_channels(problem: nm.Problem) -> nm.Tensor:
    return grad(problem).transpose(1, 2).flatten(2)


_BY_CHANNEL = {"bias": summed(_of_channels, -1)}


def _weighted(g: Given, grad: nm.Tensor) -> nm.Tensor:
    weight = g.tensors.get("weight")
    return grad if weight is None else grad * weight


def layer_norm_gradients(g: Given) -> Gradients:
    """By differences from the mean, or by sums of x itself."""
    grad = g.grad
    z, made = _normalised(g["x"], _weighted(g, grad), float(g.scalars["eps"]))
    found: Gradients = {"x": made, "bias": _rows(g, grad).sum(0)}
    return {**found, "weight": _rows(g, grad * z).sum(0)}


def _scaled(x: nm.Tensor, wg: nm.Tensor, eps: float) -> tuple[nm.Tensor, nm.Tensor]:
    """Return rows over their root mean square and their gradient."""
    n = x.shape[-1]
    r = ((x * x).mean(-1, keepdim=True) + eps).rsqrt()
    z = x * r
    one = r * (wg - z * (wg * z).mean(-1, keepdim=True))
    total = (wg * x).sum(-1, keepdim=True)
    return z, both(one, r * wg - x * ((r * r * r) * total / n))


def rms_norm_gradients(g: Given) -> Gradients:
    """By the reciprocal root mean square."""
    z, made = _scaled(g["x"], _weighted(g, g.grad), float(g.scalars["eps"]))
    return {"x": made, "weight": _rows(g, g.grad * z).sum(0)}


def add_rms_norm_gradients(g: Given) -> Gradients:
    """Those of both terms are one: of the stored sum, and h's own."""
    grad, h = g.grads["y"], g.saved(g["x"] + g["residual"])
    z, made = _scaled(h, _weighted(g, grad), float(g.scalars["eps"]))
    made = g.saved(made) + g.grads["h"]
    return {"x": made, "residual": made, "weight": _rows(g, grad * z).sum(0)}


def group_norm_gradients(g: Given) -> Gradients:
    """Those of normalised rows, each a group."""
    x, grad, weight = g["x"], g.grad, g.tensors.get("weight")
    wg = grad if weight is None else grad * weight[:, None]
    if not x.numel():
        nothing = grad.sum((0, 2))
        return {"x": wg, "weight": nothing, "bias": nothing}
    rows = (x.shape[0], int(g.scalars["num_groups"]), -1)
    z, made = _normalised(x.reshape(rows), wg.reshape(rows), float(g.scalars["eps"]))
    found: Gradients = {"x": made.reshape(x.shape), "bias": grad.sum((0, 2))}
    return {**found, "weight": (grad * z.reshape(x.shape)).sum((0, 2))}


def batch_norm_gradients(g: Given) -> Gradients:
    """The statistics are given: only x is scaled."""
    grad, weight = g.grad, g.tensors.get("weight")
    mean = g["mean"][:, None]
    r = (g["var"] + float(g.scalars["eps"])).rsqrt()[:, None]
    made = grad * r if weight is None else grad * weight[:, None] * r
    z = both((g["x"] - mean) * r, g["x"] * r - mean * r)
    # Kernels may scale the sums by r.
    direct = (grad * z).sum((0, 2))
    later = (grad * (g["x"] - mean)).sum((0, 2)) * r[:, 0]
    found: Gradients = {"x": made, "bias": grad.sum((0, 2))}
    return {**found, "weight": both(direct, later)}


def l2_normalize_gradient(g: Given) -> Gradients:
    """With a part along y where the norm exceeds eps."""
    x, dim, eps = g["x"], int(g.scalars["dim"]), float(g.scalars["eps"])
    norm = (x * x).sum(dim, keepdim=True).sqrt()
    held = norm.clamp(min=eps)
    y = g.saved(x / held)
    plain = g.grad / held
    one = plain - y * ((g.grad * y).sum(dim, keepdim=True) / held)
    other = plain - x * ((g.grad * x).sum(dim, keepdim=True) / (held * held * held))
    return {"x": both(one, other).where(norm > eps, g.grad / eps)}


def reference_add_rms_norm(
    x: Any, residual: Any, weight: Any = None, *, eps: float
) -> Any:
    """(h / sqrt(mean(h^2) + eps) * weight, h) with h = x + residual."""
    h = x + residual
    y = h / ((h * h).mean(-1, keepdim=True) + eps).sqrt()
    return y if weight is None else y * weight, h


def accept_add_rms_norm(problem: nm.Problem) -> nm.Accepted:
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
    rows = nm.Interval(held.amin(0) - lost, held.amax(0) + lost)
    y = nm.rms_scaled(problem, h, rows, weight)
    # A sum that is finite and stored as an infinity spoils the row of some kernels.
    overflows = torch.stack([torch.isinf(t) for t in stored]).any(0)
    beyond = (overflows & torch.isfinite(h)).any(-1, True)
    beyond = beyond & ~y.reference.isnan()
    return {
        "y": replace(y, ambiguous=y.ambiguous | beyond),
        "h": nm.around(problem, h, lost, classes=nm.classes_of(h)),
    }


add_rms_norm = defined(
    "add_rms_norm",
    inputs={
        "x": ks.tensors("* N"),
        "residual": ks.tensors("* N"),
        "weight": ks.tensors("N", role="weight", optional=True),
        "eps": ks.scalar(1e-6, domain=(1e-6, 1e-5, 1e-12, 1e-3)),
    },
    oracle=reference_add_rms_norm,
    error_model=accept_add_rms_norm,
    chain=("add", "rms_norm"),
    outputs=("y", "h"),
    reduced="N",
    empty_reduction=False,
    gradient=differentiable(
        "x residual weight", {"y": "* N", "h": "* N"}, formula=add_rms_norm_gradients
    ),
)


def _by_channel(problem: nm.Problem, x: Any, name: str, default: float) -> nm.Tensor:
    """Return a parameter of the channels, or its default, as [members, 1, C, 1]."""
    import torch

    given = problem.tensors.get(name)
    if given is None:
        given = torch.full_like(x[:, 0, :, 0], default)
    return given[:, None, :, None]


def _column(x: Any) -> Any:
    return None if x is None else x[:, None]


def _affine(y: Any, weight: Any, bias: Any) -> Any:
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _standardised(x: Any, eps: float) -> Any:
    """Return (x - mean) / sqrt(var + eps) of rows."""
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    return centred / (variance + eps).sqrt()


def reference_batch_norm(
    x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, *, eps: float
) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias for each channel."""
    y = (x - mean[:, None]) / (var + eps).sqrt()[:, None]
    return _affine(y, _column(weight), _column(bias))


def _scale_and_shift(
    x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, *, eps: float
) -> Any:
    """X (r g) + (b - mean r g), as most kernels have it."""
    scale = (var + eps).rsqrt()
    scale = scale if weight is None else scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    return x * scale[:, None] + shift[:, None]


_GIVEN: Final = "input=x weight bias running_mean=mean running_var=var"
batch_norm = defined(
    "batch_norm",
    inputs={
        "x": ks.tensors("B C L"),
        "mean": ks.tensors("C", role="bias"),
        "var": ks.tensors("C", role="variance"),
        "weight": ks.tensors("C", role="weight", optional=True),
        "bias": ks.tensors("C", role="bias", optional=True),
        "eps": ks.scalar(1e-5, domain=(1e-5, 1e-6, 1e-12, 1e-3, 0.1)),
    },
    oracle=reference_batch_norm,
    forms={"": (reference_batch_norm, _scale_and_shift)},
    batch="B",
    gradient=differentiable(
        "x weight bias", "B C L", formula=batch_norm_gradients, exact=_BY_CHANNEL
    ),
    aten=describes(
        "batch_norm",
        f"{_GIVEN} training=False momentum=0.1 eps cudnn_enabled=False",
        unfolded={"L": "*"},
    )
    + describes(
        "native_batch_norm",
        f"{_GIVEN} training=False momentum=0.1 eps",
        unfolded={"L": "*"},
    )
    + describes(
        "_native_batch_norm_legit_no_training",
        f"{_GIVEN} momentum=0.1 eps",
        unfolded={"L": "*"},
    ),
)


def _gated(
    x: Any, gate: Any, weight: Any, bias: Any, *, eps: float, norm_before_gate: bool,
    centred: bool,
) -> Any:  # fmt: skip
    gate = gate * gate.sigmoid()
    h = x if norm_before_gate else x * gate
    h = h - h.mean(-1, keepdim=True) if centred else h
    scale = ((h * h).mean(-1, keepdim=True) + eps).rsqrt()
    y = _affine(h * scale, weight, bias)
    return y * gate if norm_before_gate else y


def reference_gated_layer_norm(
    x: Any, gate: Any, weight: Any = None, bias: Any = None, **scalars: Any
) -> Any:
    """The layer norm of x, affine, times silu(gate), or that of x silu(gate)."""
    return _gated(x, gate, weight, bias, centred=True, **scalars)


gated_layer_norm = defined(
    "gated_layer_norm",
    inputs={
        "x": ks.tensors("* N"),
        "gate": ks.tensors("* N"),
        "weight": ks.tensors("N", role="weight", optional=True),
        "bias": ks.tensors("N", role="bias", optional=True),
        "eps": ks.scalar(1e-5, domain=(1e-5, 1e-6, 1e-12, 1e-3)),
        "norm_before_gate": ks.scalar(True, domain=(False,)),
    },
    oracle=reference_gated_layer_norm,
    reduced="N",
    recentres=True,
    subtracts_mean=True,
    empty_reduction=False,
)


def reference_gated_rms_norm(
    x: Any, gate: Any, weight: Any = None, **scalars: Any
) -> Any:
    """The RMS norm of x, weighted, times silu(gate), or that of x silu(gate)."""
    return _gated(x, gate, weight, None, centred=False, **scalars)


gated_rms_norm = replace(
    gated_layer_norm,
    name="gated_rms_norm",
    inputs={n: p for n, p in gated_layer_norm.inputs.items() if n != "bias"},
    oracle=reference_gated_rms_norm,
    recentres=False,
    subtracts_mean=False,
    **bounded("gated_rms_norm", Structure.INTERVAL),
)


def reference_group_norm(
    x: Any, weight: Any = None, bias: Any = None, *, num_groups: int, eps: float
) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias over the channels of a group."""
    groups = x.reshape(x.shape[0], num_groups, -1) if x.numel() else x
    y = _standardised(groups, eps).reshape(x.shape)
    return _affine(y, _column(weight), _column(bias))


def accept_group_norm(problem: nm.Problem) -> nm.Acceptance:
    """Return the interval of layer_norm over the n = C / num_groups * L of a group.

    See `kfuzz.numerics.models.sums`.
    """
    x = problem.tensors["x"]
    members, batch, _, length = x.shape
    if x.numel() == 0:
        return nm.around(problem, x, 0.0)
    groups = problem.axis("num_groups")

    weight, bias = (
        _by_channel(problem, x, name, default)
        .expand(-1, 1, -1, length)
        .reshape(members, 1, groups, -1)
        for name, default in (("weight", 1.0), ("bias", 0.0))
    )
    rows = x.reshape(members, batch, groups, -1)
    return nm.reshaped(nm.normalised(problem, rows, weight, bias), x.shape)


group_norm = defined(
    "group_norm",
    inputs={
        "x": ks.tensors("B C L"),
        "weight": ks.tensors("C", role="weight", optional=True),
        "bias": ks.tensors("C", role="bias", optional=True),
        "num_groups": ks.scalar(1, domain=(1, 2, 3, 4, 8)),
        "eps": ks.scalar(1e-5, domain=(1e-5, 1e-6, 1e-12, 1e-3, 0.1)),
    },
    oracle=reference_group_norm,
    error_model=accept_group_norm,
    batch="B",
    reduced="L",
    shape_class="C % num_groups == 0",
    recentres=True,
    groups="num_groups",
    subtracts_mean=True,
    empty_reduction=False,
    gradient=differentiable(
        "x weight bias", "B C L", formula=group_norm_gradients, exact=_BY_CHANNEL
    ),
    aten=describes(
        "group_norm", "input=x num_groups weight bias eps", unfolded={"L": "*"}
    )
    + describes(
        "native_group_norm", "input=x weight bias N=B C=C HxW=L group=num_groups eps"
    ),
)


def reference_instance_norm(
    x: Any, weight: Any = None, bias: Any = None, *, eps: float
) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimension."""
    return _affine(_standardised(x, eps), _column(weight), _column(bias))


def accept_instance_norm(problem: nm.Problem) -> nm.Acceptance:
    """Return the interval of layer_norm for each channel, affine by channel.

    See `kfuzz.numerics.models.sums`.
    """
    x = problem.tensors["x"]
    if x.numel() == 0:
        return nm.around(problem, x, 0.0)

    weight = _by_channel(problem, x, "weight", 1.0).expand_as(x)
    bias = _by_channel(problem, x, "bias", 0.0).expand_as(x)
    return nm.normalised(problem, x, weight, bias)


instance_norm = replace(
    group_norm,
    name="instance_norm",
    inputs={n: p for n, p in group_norm.inputs.items() if n != "num_groups"},
    oracle=reference_instance_norm,
    error_model=accept_instance_norm,
    shape_class="",
    groups="",
    **bounded("instance_norm", Structure.INTERVAL),
    gradient=None,
    aten=(),
)


def reference_l2_normalize(x: Any, *, dim: int, eps: float) -> Any:
    """Rows divided by the greater of its Euclidean norm along dim and eps."""
    return x / (x * x).sum(dim, keepdim=True).sqrt().clamp(min=eps)


l2_normalize = defined(
    "l2_normalize",
    inputs={
        "x": ks.tensors("*"),
        "dim": ks.dim(of="x"),
        "eps": ks.scalar(1e-12, domain=(1e-12, 1e-6, 1e-3, 0.5, 4.0, 32.0)),
    },
    oracle=reference_l2_normalize,
    forms={"": (reference_l2_normalize,)},
    gradient=differentiable("x", formula=l2_normalize_gradient),
)


def reference_layer_norm(
    x: Any, weight: Any = None, bias: Any = None, *, eps: float
) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimension."""
    return _affine(_standardised(x, eps), weight, bias)


def accept_layer_norm(problem: nm.Problem) -> nm.Acceptance:
    """Return the interval for the class of Welford's method.

    Emu = gamma(n + 2 + 2 ln(n+1)) mean|x|;
    Ev = gamma(2(n+6)) v + 2 gamma(n+2) sqrt(v) rms + Emu^2 + 2 eta;
    then r = (v + eps)^-1/2 as an interval, and the affine step in either of its
    usual forms, (x - mu) r g + b and x (r g) + (b - mu r g).
    """
    x = problem.tensors["x"]
    weight = nm.row_parameter(problem, "weight", x, default=1.0)
    bias = nm.row_parameter(problem, "bias", x, default=0.0)
    return nm.normalised(problem, x, weight, bias)


layer_norm = defined(
    "layer_norm",
    inputs={
        "x": ks.tensors("* N"),
        "weight": ks.tensors("N", role="weight", optional=True),
        "bias": ks.tensors("N", role="bias", optional=True),
        "eps": ks.scalar(1e-5, domain=(1e-5, 1e-6, 1e-12, 1e-3, 0.1)),
    },
    oracle=reference_layer_norm,
    error_model=accept_layer_norm,
    reduced="N",
    recentres=True,
    subtracts_mean=True,
    empty_reduction=False,
    gradient=differentiable(
        "x weight bias",
        "* N",
        formula=layer_norm_gradients,
        exact={"bias": summed(_of_rows, 1)},
    ),
    aten=describes(
        "layer_norm native_layer_norm", "input=x normalized_shape=[N] weight bias eps"
    ),
)


CAST_FIRST: Final = "cast_before_weight"


def reference_rms_norm(x: Any, weight: Any = None, *, eps: float) -> Any:
    """Rows divided by sqrt(mean(x^2) + eps), times weight, over the last dimension."""
    y = x / ((x * x).mean(-1, keepdim=True) + eps).sqrt()
    return y if weight is None else y * weight


# By forms fewer planted faults are found: in 367 of 457 runs, in 387 by this.
def accept_rms_norm(problem: nm.Problem) -> nm.Acceptance:
    """Return x r g with r = (mean x^2 + eps)^-1/2 as an interval.

    See `kfuzz.numerics.models.sums`. Where it is declared that x r is rounded to the
    data's format before it meets the weight, as in Llama's reference model, that
    rounding is admitted too.
    """
    x = problem.tensors["x"]
    weight = nm.row_parameter(problem, "weight", x, default=1.0)
    stored = problem.declaration.algorithm == CAST_FIRST
    held = nm.Interval.exact(nm.finite_or_zero(x))
    return nm.rms_scaled(problem, x, held, weight, stored=stored)


rms_norm = defined(
    "rms_norm",
    inputs={
        "x": ks.tensors("* N"),
        "weight": ks.tensors("N", role="weight", optional=True),
        "eps": ks.scalar(1e-6, domain=(1e-6, 1e-5, 1e-12, 1e-3)),
    },
    oracle=reference_rms_norm,
    error_model=accept_rms_norm,
    reduced="N",
    empty_reduction=False,
    algorithms={CAST_FIRST: "x r is rounded to the data's format before the weight"},
    gradient=differentiable("x weight", "* N", formula=rms_norm_gradients),
    aten=describes(
        "rms_norm _fused_rms_norm", "input=x normalized_shape=[N] weight eps"
    ),
)


def reference_weight_norm(v: Any, g: Any) -> Any:
    """Rows v g / sqrt(sum v^2) over the last dimension."""
    return v * (g[:, None] / (v * v).sum(-1, keepdim=True).sqrt())


weight_norm = defined(
    "weight_norm",
    inputs={"v": ks.tensors("O K"), "g": ks.tensors("O", role="weight")},
    oracle=reference_weight_norm,
    homogeneous={"g": 1},
    reduced="K",
    batch="O",
)
