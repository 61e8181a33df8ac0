"""Gradients of matrix products, of what is fused with them, and of attention."""

import math

from kfuzz import numerics as nm
from kfuzz.contracts.gradients.rules import Given, Gradients, Taken, both, rule
from kfuzz.contracts.gradients.rules.elementwise import (
    gelu_slope,
    grad,
    products,
    summed,
)


def _taken(name: str, *, turned: bool = False) -> Taken:
    def taken(problem: "nm.Problem") -> "nm.Tensor":
        x = problem.tensors[name]
        return x.transpose(-1, -2) if turned else x

    return taken


def _turned(problem: "nm.Problem") -> "nm.Tensor":
    return grad(problem).transpose(-1, -2)


_FACTORS = {
    "a": products(grad, _taken("b", turned=True)),
    "b": products(_taken("a", turned=True), grad),
}


@rule("matmul", "a", "b", dims="M N", exact=_FACTORS)
@rule("bmm", "a", "b", dims="B M N", exact=_FACTORS)
def _matmul(g: Given) -> Gradients:
    return {"a": g.grad @ g["b"].mT, "b": g["a"].mT @ g.grad}


def _flat(x: "nm.Tensor") -> "nm.Tensor":
    """Return [members, *, n] as [members, rows, n]."""
    rows = math.prod(x.shape[1:-1])
    return x.reshape(x.shape[0], rows, x.shape[-1])


@rule(
    "linear",
    "x",
    "weight",
    "bias",
    dims="* N",
    exact={
        "x": products(lambda p: _flat(grad(p)), _taken("weight"), _taken("x")),
        "weight": products(
            lambda p: _flat(grad(p)).transpose(-1, -2), lambda p: _flat(p.tensors["x"])
        ),
        "bias": summed(lambda p: _flat(grad(p)), 1),
    },
)
def _linear(g: Given) -> Gradients:
    return _of_linear(g, g.grad)


def _of_linear(g: Given, dz: "nm.Tensor") -> Gradients:
    flat, x = (t.reshape(-1, t.shape[-1]) for t in (dz, g["x"]))
    return {
        "x": (flat @ g["weight"]).reshape(g["x"].shape),
        "weight": flat.mT @ x,
        "bias": flat.sum(0),
    }


def _before(g: Given) -> "nm.Tensor":
    """Return x W^T + b."""
    x, bias = g["x"].reshape(-1, g["x"].shape[-1]), g.tensors.get("bias")
    made = x @ g["weight"].mT
    made = made if bias is None else made + bias
    return made.reshape(*g["x"].shape[:-1], made.shape[-1])


@rule("linear_relu", "x", "weight", "bias", dims="* N")
def _linear_relu(g: Given) -> Gradients:
    y = g.saved(_before(g))
    return _of_linear(g, g.grad.where(y > 0, g.grad.new_zeros(())))


@rule("linear_gelu", "x", "weight", "bias", dims="* N")
def _linear_gelu(g: Given) -> Gradients:
    return _of_linear(g, g.saved(g.grad * gelu_slope(g.saved(_before(g)))))


@rule("attention", "q", "k", "v", dims="B H S D")
def _attention(g: Given) -> Gradients:
    import torch

    q, k, v, mask = g["q"], g["k"], g["v"], g.tensors.get("mask")
    repeats = q.shape[1] // k.shape[1]
    keys, values = (t.repeat_interleave(repeats, 1) for t in (k, v))
    given = g.scalars["scale"]
    scale = 1 / math.sqrt(q.shape[-1]) if given is None else float(given)
    scores, slope = (q @ keys.mT) * scale, None
    if (cap := g.scalars.get("softcap")) is not None:
        bent = (scores / float(cap)).tanh()
        scores, slope = bent * float(cap), 1 - bent * bent
    if mask is not None:
        scores = scores + mask
    window = g.scalars.get("window")
    seen = nm.visible(
        *scores.shape[-2:], causal=bool(g.scalars["causal"]),
        window=None if window is None else int(window),
        bottom=g.scalars.get("causal_alignment") == "bottom_right", like=q,
    )  # fmt: skip
    scores = torch.where(seen, scores, -math.inf)
    if (sinks := g.tensors.get("sinks")) is not None:
        more = sinks[:, None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat((scores, more), -1)
    void = (scores == -math.inf).all(-1, keepdim=True)
    weight = torch.where(void, 0.0, torch.softmax(torch.where(void, 0.0, scores), -1))
    weight = g.saved(weight[..., : k.shape[2]])
    of_weight = g.grad @ values.mT
    inner = (weight * of_weight).sum(-1, keepdim=True)
    outer = (g.grad * g.saved(weight @ values)).sum(-1, keepdim=True)
    of_score = g.saved(weight * (of_weight - both(inner, outer)))
    if slope is not None:
        of_score = of_score * slope
    dq, dk, dv = of_score @ keys, of_score.mT @ q, weight.mT @ g.grad
    heads = (k.shape[0], k.shape[1], repeats, k.shape[2])
    return {
        "q": dq * scale,
        "k": (g.saved(dk * scale)).reshape(*heads, k.shape[-1]).sum(2),
        "v": g.saved(dv).reshape(*heads, v.shape[-1]).sum(2),
    }
