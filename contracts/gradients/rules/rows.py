"""Gradients of normalisations, reductions, moves, selections, losses and rotations."""

from kfuzz import numerics as nm
from kfuzz.contracts.gradients.rules import (
    Either,
    Given,
    Gradients,
    Relation,
    both,
    product,
    rule,
)
from kfuzz.contracts.gradients.rules.elementwise import (
    grad,
    moved,
    prefixes,
    scattered,
    summed,
)
from kfuzz.contracts.operators.elementwise import tables, turned


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
    "layer_norm", "x", "weight", "bias", dims="* N", exact={"bias": summed(_of_rows, 1)}
)
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


@rule("rms_norm", "x", "weight", dims="* N")
def _rms_norm(g: Given) -> Gradients:
    grad, weight = g.grad, g.tensors.get("weight")
    wg = grad if weight is None else grad * weight
    z, made = _scaled(g["x"], wg, float(g.scalars["eps"]))
    return {"x": made, "weight": _rows(g, grad * z).sum(0)}


@rule("add_rms_norm", "x", "residual", "weight", dims={"y": "* N", "h": "* N"})
def _add_rms_norm(g: Given) -> Gradients:
    grad, weight = g.grads["y"], g.tensors.get("weight")
    h = g.saved(g["x"] + g["residual"])
    wg = grad if weight is None else grad * weight
    z, made = _scaled(h, wg, float(g.scalars["eps"]))
    made = g.saved(made) + g.grads["h"]
    return {"x": made, "residual": made, "weight": _rows(g, grad * z).sum(0)}


@rule("group_norm", "x", "weight", "bias", dims="B C L", exact=_BY_CHANNEL)
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


@rule("batch_norm", "x", "weight", "bias", dims="B C L", exact=_BY_CHANNEL)
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


# Gradients of reductions, softmax and its kin, and of moves.


def _spread(problem: "nm.Problem") -> "nm.Tensor":
    return grad(problem).unsqueeze(problem.axis()).expand_as(problem.tensors["x"])


@rule("sum", "x", lacks="dim", exact={"x": moved(_spread)})
def _sum(g: Given) -> Gradients:
    return {"x": g.grad.unsqueeze(g.dim).expand_as(g["x"])}


@rule("mean", "x", lacks="dim")
def _mean(g: Given) -> Gradients:
    n = g["x"].shape[g.dim]
    return {"x": (g.grad / n).unsqueeze(g.dim).expand_as(g["x"])}


def _greatest(g: Given, top: "nm.Tensor") -> Gradients:
    chosen = g["x"] == top.unsqueeze(g.dim)
    spread = g.grad.unsqueeze(g.dim)
    nothing = g.grad.new_zeros(())
    ties = chosen.sum(g.dim, keepdim=True)
    several = chosen & (ties > 1)
    value = (spread / ties.clamp(min=1)).where(chosen, nothing)
    alone = spread.where(chosen, nothing)
    value = value.where(several, alone)
    return {"x": Either(value, nothing.where(several, value), alone)}


def _shared(*, greatest: bool) -> Relation:
    def accept(problem: "nm.Problem", outputs: "nm.Tensors") -> "nm.Tensors":
        """The shares of equal elements add up to grad_y."""
        dim, x = problem.axis(), problem.tensors["x"]
        made = outputs["dx"].to(x.dtype)
        top = x.amax(dim, keepdim=True) if greatest else x.amin(dim, keepdim=True)
        chosen = x == top
        ties = chosen.sum(dim, keepdim=True)
        spread = grad(problem).unsqueeze(dim)
        total = made.where(chosen, made.new_zeros(())).sum(dim, keepdim=True)
        # Each share is rounded twice, and may be flushed.
        room = 2 * problem.output.unit * spread.abs() + problem.output.min_normal
        right = ((total - spread).abs() <= ties * room) | ~total.isfinite()
        return {"dx": right | (ties < 2) | ~chosen}

    return accept


@rule("amax", "x", lacks="dim", accept=_shared(greatest=True))
def _amax(g: Given) -> Gradients:
    return _greatest(g, g["x"].amax(g.dim))


@rule("amin", "x", lacks="dim", accept=_shared(greatest=False))
def _amin(g: Given) -> Gradients:
    return _greatest(g, g["x"].amin(g.dim))


@rule("var", "x", lacks="dim")
def _var(g: Given) -> Gradients:
    x, dim = g["x"], g.dim
    n = x.shape[dim] - int(g.scalars["correction"])
    centred = x - x.mean(dim, keepdim=True)
    if n <= 0:
        return {"x": centred * float("nan")}
    spread = g.grad.unsqueeze(dim)
    scale = x.new_ones(()) * 2 / n
    return {"x": product(spread, scale, centred)}


@rule("cumsum", "x", exact={"x": prefixes})
def _cumsum(g: Given) -> Gradients:
    return {"x": g.grad.flip(g.dim).cumsum(g.dim).flip(g.dim)}


@rule("logsumexp", "x", lacks="dim")
def _logsumexp(g: Given) -> Gradients:
    import torch

    x, dim = g["x"], g.dim
    spread = g.grad.unsqueeze(dim)
    total = g.saved(torch.logsumexp(x, dim)).unsqueeze(dim)
    return {"x": both(spread * torch.softmax(x, dim), spread * (x - total).exp())}


@rule("softmax", "x")
def _softmax(g: Given) -> Gradients:
    import torch

    y = g.saved(torch.softmax(g["x"], g.dim))
    total = (g.grad * y).sum(g.dim, keepdim=True)
    return {"x": both(y * (g.grad - total), y * g.grad - y * total)}


@rule("log_softmax", "x")
def _log_softmax(g: Given) -> Gradients:
    import torch

    total = g.grad.sum(g.dim, keepdim=True)
    stored = g.saved(torch.log_softmax(g["x"], g.dim)).exp()
    share = both(torch.softmax(g["x"], g.dim), stored)
    return {"x": g.grad - share * total}


@rule("l2_normalize", "x")
def _l2_normalize(g: Given) -> Gradients:
    x, dim, eps = g["x"], g.dim, float(g.scalars["eps"])
    norm = (x * x).sum(dim, keepdim=True).sqrt()
    held = norm.clamp(min=eps)
    y = g.saved(x / held)
    plain = g.grad / held
    one = plain - y * ((g.grad * y).sum(dim, keepdim=True) / held)
    other = plain - x * ((g.grad * x).sum(dim, keepdim=True) / (held * held * held))
    return {"x": both(one, other).where(norm > eps, g.grad / eps)}


@rule(
    "transpose",
    "x",
    dims="* N M",
    exact={"x": moved(lambda problem: grad(problem).transpose(-1, -2))},
)
def _transpose(g: Given) -> Gradients:
    return {"x": g.grad.transpose(-1, -2)}


# Gradients of operators with indices, of the loss of a classifier, of rotations.


def _taken(problem: "nm.Problem", name: str) -> "nm.Tensor":
    """Return indices of rows as those of their elements, [members, k, width]."""
    index = problem.tensors[name].flatten(1)
    return index.unsqueeze(-1).expand(-1, -1, grad(problem).shape[-1])


def _listed(problem: "nm.Problem") -> "nm.Tensor":
    g = grad(problem)
    members, width = g.shape[0], g.shape[-1]
    return g.reshape(members, g.numel() // max(members * width, 1) if width else
                     _count(problem), width)  # fmt: skip


def _count(problem: "nm.Problem") -> int:
    return int(problem.tensors["indices"][0].numel())


@rule(
    "embedding",
    "weight",
    dims="* D",
    exact={"weight": scattered("weight", lambda p: _taken(p, "indices"), 1, _listed)},
)
def _embedding(g: Given) -> Gradients:
    index, width = g["indices"].flatten(), g["weight"].shape[-1]
    start = g.grad.new_zeros(g["weight"].shape)
    return {"weight": start.index_add(0, index, g.grad.reshape(len(index), width))}


@rule(
    "index_select",
    "x",
    dims="K D",
    exact={"x": scattered("x", lambda p: _taken(p, "index"), 1, grad)},
)
def _index_select(g: Given) -> Gradients:
    return {"x": g.grad.new_zeros(g["x"].shape).index_add(0, g["index"], g.grad)}


@rule(
    "gather",
    "x",
    dims="N K",
    exact={"x": scattered("x", lambda p: p.tensors["index"], -1, grad)},
)
def _gather(g: Given) -> Gradients:
    return {"x": g.grad.new_zeros(g["x"].shape).scatter_add(-1, g["index"], g.grad)}


@rule(
    "scatter_add",
    "x",
    "src",
    dims="N C",
    exact={
        "x": moved(grad),
        "src": moved(lambda p: grad(p).gather(-1, p.tensors["index"])),
    },
)
def _scatter_add(g: Given) -> Gradients:
    return {"x": g.grad, "src": g.grad.gather(-1, g["index"])}


@rule("index_add", "x", "src", dims="V D", exact={"x": moved(grad)})
def _index_add(g: Given) -> Gradients:
    taken = g.grad.index_select(0, g["index"])
    return {"x": g.grad, "src": taken * float(g.scalars["alpha"])}


@rule(
    "cross_entropy",
    "logits",
    dims="",
    variants={
        "": ({"reduction": ("mean", "sum")}, ""),
        "_none": ({"reduction": ("none",)}, "N"),
    },
)
def _cross_entropy(g: Given) -> Gradients:
    import torch

    x, target = g["logits"], g["target"]
    smoothing = float(g.scalars["label_smoothing"])
    kept = target != int(g.scalars["ignore_index"])
    classes = x.shape[-1]
    share = torch.softmax(x, -1)
    at = torch.where(kept, target, 0).unsqueeze(-1)
    wanted = x.new_zeros(x.shape).scatter(-1, at, 1.0)
    if smoothing:
        wanted = wanted * (1 - smoothing) + smoothing / max(classes, 1)
    spread = g.grad.unsqueeze(-1)
    if g.scalars["reduction"] == "none":
        made = (share - wanted) * spread
    else:
        weight = g.grad
        if g.scalars["reduction"] == "mean":
            count = kept.sum()
            weight = g.grad / count
            # The mean of no row is NaN: nothing is said of its gradient.
            kept = kept | (count == 0)
        # The gradient of the loss of a row, then that of the mean; or the other way.
        made = both((share - wanted) * weight, share * weight - wanted * weight)
    return {"logits": made.where(kept.unsqueeze(-1), x.new_zeros(()))}


@rule("rope", "x", "cos", "sin", dims="B S H D")
def _rope(g: Given) -> Gradients:
    x, grad_y = g["x"], g.grad
    interleaved, repeats = bool(g.scalars["interleaved"]), int(g.scalars["repeats"])
    c, s = tables(g["cos"], g["sin"], interleaved=interleaved, repeats=repeats)

    def folded(t: "nm.Tensor") -> "nm.Tensor":
        """Return the sum over batch and heads, then over the columns of one angle."""
        # As one sum: an implementation may take the terms in any order.
        table = g["cos"].shape[-1]
        if interleaved:
            parts = t.reshape(*t.shape[:-1], table, repeats).sum((0, 2, 4))
        else:
            parts = t.reshape(*t.shape[:-1], repeats, table).sum((0, 2, 3))
        return parts

    return {
        "x": grad_y * c - turned(grad_y * s, interleaved=interleaved),
        "cos": folded(grad_y * x),
        "sin": folded(grad_y * turned(x, interleaved=interleaved)),
    }
