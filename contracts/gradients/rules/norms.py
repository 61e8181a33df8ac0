"""Gradients of normalisations."""

from kfuzz import numerics as nm
from kfuzz.contracts.gradients.rules import Given, Gradients, both, product, rule
from kfuzz.contracts.gradients.rules.exact import grad, summed

NORM = (
    "as the shadow's of r (wg - mean wg - z mean(wg z)), z = (x - mean) r, and of the "
    "form b x + c"
)


def _normalised(
    x: "nm.Tensor", wg: "nm.Tensor", eps: float
) -> tuple["nm.Tensor", "nm.Tensor"]:
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


def _rows(g: Given, x: "nm.Tensor") -> "nm.Tensor":
    return x.reshape(-1, g["x"].shape[-1])


def _of_rows(problem: "nm.Problem") -> "nm.Tensor":
    return grad(problem).flatten(1, -2)


def _of_channels(problem: "nm.Problem") -> "nm.Tensor":
    return grad(problem).transpose(1, 2).flatten(2)


_BY_CHANNEL = {"bias": summed(_of_channels, -1)}


@rule(
    "layer_norm", "x", "weight", "bias", dims="* N",
    exact={"bias": summed(_of_rows, 1)}, bound=NORM,
)  # fmt: skip
def _layer_norm(g: Given) -> Gradients:
    grad, weight = g.grad, g.tensors.get("weight")
    wg = grad if weight is None else grad * weight
    z, made = _normalised(g["x"], wg, float(g.scalars["eps"]))
    found: Gradients = {"x": made, "bias": _rows(g, grad).sum(0)}
    return {**found, "weight": _rows(g, grad * z).sum(0)}


def _scaled(
    x: "nm.Tensor", wg: "nm.Tensor", eps: float
) -> tuple["nm.Tensor", "nm.Tensor"]:
    """Return rows over their root mean square and their gradient."""
    n = x.shape[-1]
    r = ((x * x).mean(-1, keepdim=True) + eps).rsqrt()
    z = x * r
    one = r * (wg - z * (wg * z).mean(-1, keepdim=True))
    total = (wg * x).sum(-1, keepdim=True)
    return z, both(one, r * wg - x * ((r * r * r) * total / n))


@rule(
    "rms_norm",
    "x",
    "weight",
    dims="* N",
    bound="as the shadow's of r (wg - z mean(wg z)), z = x r",
)
def _rms_norm(g: Given) -> Gradients:
    grad, weight = g.grad, g.tensors.get("weight")
    wg = grad if weight is None else grad * weight
    z, made = _scaled(g["x"], wg, float(g.scalars["eps"]))
    return {"x": made, "weight": _rows(g, grad * z).sum(0)}


@rule(
    "add_rms_norm", "x", "residual", "weight", dims={"y": "* N", "h": "* N"},
    bound="as the shadow's of grad_h and rms_norm's, from h or from the stored h",
)  # fmt: skip
def _add_rms_norm(g: Given) -> Gradients:
    grad, weight = g.grads["y"], g.tensors.get("weight")
    h = g.saved(g["x"] + g["residual"])
    wg = grad if weight is None else grad * weight
    z, made = _scaled(h, wg, float(g.scalars["eps"]))
    made = g.saved(made) + g.grads["h"]
    return {"x": made, "residual": made, "weight": _rows(g, grad * z).sum(0)}


@rule("group_norm", "x", "weight", "bias", dims="B C L", exact=_BY_CHANNEL, bound=NORM)
def _group_norm(g: Given) -> Gradients:
    x, grad, weight = g["x"], g.grad, g.tensors.get("weight")
    wg = grad if weight is None else grad * weight[:, None]
    if not x.numel():
        nothing = grad.sum((0, 2))
        return {"x": wg, "weight": nothing, "bias": nothing}
    rows = (x.shape[0], int(g.scalars["num_groups"]), -1)
    z, made = _normalised(x.reshape(rows), wg.reshape(rows), float(g.scalars["eps"]))
    found: Gradients = {"x": made.reshape(x.shape), "bias": grad.sum((0, 2))}
    return {**found, "weight": (grad * z.reshape(x.shape)).sum((0, 2))}


@rule(
    "batch_norm", "x", "weight", "bias", dims="B C L", exact=_BY_CHANNEL,
    bound="as the shadow's of grad_y g r, r = (var + eps)^-1/2",
)  # fmt: skip
def _batch_norm(g: Given) -> Gradients:
    grad, weight = g.grad, g.tensors.get("weight")
    mean = g["mean"][:, None]
    r = (g["var"] + float(g.scalars["eps"])).rsqrt()[:, None]
    made = grad * r if weight is None else product(grad, weight[:, None], r)
    z = both((g["x"] - mean) * r, g["x"] * r - mean * r)
    # Kernels may scale the sums by r.
    direct = (grad * z).sum((0, 2))
    later = (grad * (g["x"] - mean)).sum((0, 2)) * r[:, 0]
    found: Gradients = {"x": made, "bias": grad.sum((0, 2))}
    return {**found, "weight": both(direct, later)}
