"""Gradients of reductions, softmax and its kin, and of moves."""

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
from kfuzz.contracts.gradients.rules.exact import grad, moved, prefixes


def _spread(problem: "nm.Problem") -> "nm.Tensor":
    return grad(problem).unsqueeze(problem.axis()).expand_as(problem.tensors["x"])


@rule("sum", "x", lacks="dim", exact={"x": moved(_spread)}, bound="dx == grad_y")
def _sum(g: Given) -> Gradients:
    return {"x": g.grad.unsqueeze(g.dim).expand_as(g["x"])}


@rule("mean", "x", lacks="dim", bound="as the shadow's of grad_y / n")
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


@rule(
    "amax", "x", lacks="dim",
    bound="grad_y at the greatest element, 0 elsewhere; equal ones share it in any way",
    accept=_shared(greatest=True),
)  # fmt: skip
def _amax(g: Given) -> Gradients:
    return _greatest(g, g["x"].amax(g.dim))


@rule(
    "amin", "x", lacks="dim",
    bound="grad_y at the least element, 0 elsewhere; equal ones share it in any way",
    accept=_shared(greatest=False),
)  # fmt: skip
def _amin(g: Given) -> Gradients:
    return _greatest(g, g["x"].amin(g.dim))


@rule("var", "x", lacks="dim", bound="as the shadow's of 2 grad_y (x - mean) / (n - c)")
def _var(g: Given) -> Gradients:
    x, dim = g["x"], g.dim
    n = x.shape[dim] - int(g.scalars["correction"])
    centred = x - x.mean(dim, keepdim=True)
    if n <= 0:
        return {"x": centred * float("nan")}
    spread = g.grad.unsqueeze(dim)
    scale = x.new_ones(()) * 2 / n
    return {"x": product(spread, scale, centred)}


@rule("cumsum", "x", exact={"x": prefixes}, bound="gamma(i, u) sum|grad_y| of a suffix")
def _cumsum(g: Given) -> Gradients:
    return {"x": g.grad.flip(g.dim).cumsum(g.dim).flip(g.dim)}


@rule("logsumexp", "x", lacks="dim", bound="as the shadow's, from x or the stored y")
def _logsumexp(g: Given) -> Gradients:
    import torch

    x, dim = g["x"], g.dim
    spread = g.grad.unsqueeze(dim)
    total = g.saved(torch.logsumexp(x, dim)).unsqueeze(dim)
    return {"x": both(spread * torch.softmax(x, dim), spread * (x - total).exp())}


@rule(
    "softmax", "x",
    bound="as the shadow's of y (grad_y - sum grad_y y) and y grad_y - y sum, "
    "from x or from the stored y",
)  # fmt: skip
def _softmax(g: Given) -> Gradients:
    import torch

    y = g.saved(torch.softmax(g["x"], g.dim))
    total = (g.grad * y).sum(g.dim, keepdim=True)
    return {"x": both(y * (g.grad - total), y * g.grad - y * total)}


@rule(
    "log_softmax", "x",
    bound="as the shadow's of grad_y - exp(y) sum grad_y, from x or from the stored y",
)  # fmt: skip
def _log_softmax(g: Given) -> Gradients:
    import torch

    total = g.grad.sum(g.dim, keepdim=True)
    stored = g.saved(torch.log_softmax(g["x"], g.dim)).exp()
    share = both(torch.softmax(g["x"], g.dim), stored)
    return {"x": g.grad - share * total}


@rule("l2_normalize", "x", bound="as the shadow's of (grad_y - y sum grad_y y) / |x|")
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
    "transpose", "x", dims="* N M",
    exact={"x": moved(lambda problem: grad(problem).transpose(-1, -2))},
    bound="dx == grad_y, transposed",
)  # fmt: skip
def _transpose(g: Given) -> Gradients:
    return {"x": g.grad.transpose(-1, -2)}
