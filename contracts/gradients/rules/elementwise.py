"""Gradients of elementwise operators, and bounds of those that sum or move elements.

A bound is a function of the gradient's problem: the arguments of the forward operator,
and `grad_…` for each output.
"""

import math
from dataclasses import replace

from kfuzz import numerics as nm
from kfuzz.contracts.gradients.rules import (
    PREFIX,
    Either,
    Exact,
    Given,
    Gradients,
    Taken,
    both,
    product,
    rule,
)
from kfuzz.contracts.operators.elementwise import accept_mul
from kfuzz.contracts.operators.reductions import accept_cumsum, accept_sum


def grad(problem: "nm.Problem") -> "nm.Tensor":
    """Return the gradient of the output y."""
    return problem.tensors[PREFIX + "y"]


def moved(taken: Taken) -> Exact:
    """Return the bound of elements that are only moved: nothing rounds."""
    return lambda problem: nm.around(problem, taken(problem), 0.0)


def factor(name: str) -> Exact:
    """Return the bound of the product of the gradient with an argument."""

    def bound(problem: "nm.Problem") -> "nm.Acceptance":
        pair = {"a": grad(problem), "b": problem.tensors[name]}
        return accept_mul(replace(problem, tensors=pair, scalars={}))

    return bound


def products(left: Taken, right: Taken, shape: Taken | None = None) -> Exact:
    """Return the bound of a matrix product.

    Args:
        left: [members, …, rows, inner].
        right: [members, …, inner, columns].
        shape: of whose shape the result is.
    """

    def bound(problem: "nm.Problem") -> "nm.Acceptance":
        made = nm.dots(problem, left(problem), right(problem))
        if shape is not None:
            made = made.reshaped(*shape(problem).shape)
        return made.accepted(problem)

    return bound


def summed(taken: Taken, dim: int) -> Exact:
    """Return the bound of a sum along a dimension, in any order."""
    return lambda problem: accept_sum(
        replace(problem, tensors={"x": taken(problem)}, scalars={"dim": dim})
    )


def prefixes(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the bound of a cumulative sum's gradient: the sums of all suffixes."""
    dim = problem.axis()
    turned = grad(problem).flip(dim)
    made = accept_cumsum(replace(problem, tensors={"x": turned}))
    return made.mapped(lambda x: x.flip(dim))


def scattered(to: str, index: Taken, dim: int, source: Taken) -> Exact:
    """Return the bound of sums of the rows or elements that name a place.

    Args:
        to: the argument whose gradient it is.
        index: int64, of the sources' shape.
        dim: the dimension along which indices select.
        source: what is added.
    """

    def bound(problem: "nm.Problem") -> "nm.Acceptance":
        import torch

        start = torch.zeros_like(problem.tensors[to])
        return nm.scattered_sums(
            problem, start, index(problem), source(problem), dim=dim
        )

    return bound


# Gradients of elementwise operators.


def step(x: "nm.Tensor", below: "nm.Tensor", above: "nm.Tensor") -> Either:
    """Return `above` where x > 0, `below` where x < 0, and either at 0."""
    value = above.where(x > 0, below)
    return Either(value, value, value.where(x != 0, above))


@rule("copy", "x", exact={"x": moved(grad)})
def _copy(g: Given) -> Gradients:
    return {"x": g.grad}


@rule("add", "a", "b", exact={"a": moved(grad), "b": moved(grad)})
def _add(g: Given) -> Gradients:
    return {"a": g.grad, "b": g.grad}


@rule("mul", "a", "b", exact={"a": factor("b"), "b": factor("a")})
def _mul(g: Given) -> Gradients:
    return {"a": g.grad * g["b"], "b": g.grad * g["a"]}


@rule("where", "x", "y")
def _where(g: Given) -> Gradients:
    nothing = g.grad.new_zeros(())
    return {
        "x": g.grad.where(g["mask"], nothing),
        "y": nothing.where(g["mask"], g.grad),
    }


@rule("relu", "x")
def _relu(g: Given) -> Gradients:
    return {"x": step(g["x"], g.grad.new_zeros(()), g.grad)}


@rule("leaky_relu", "x")
def _leaky_relu(g: Given) -> Gradients:
    below = g.grad * float(g.scalars["negative_slope"])
    return {"x": step(g["x"], below, g.grad)}


@rule("clamp", "x")
def _clamp(g: Given) -> Gradients:
    x, low, high = g["x"], float(g.scalars["min"]), float(g.scalars["max"])
    nothing = g.grad.new_zeros(())
    value = g.grad.where((x >= low) & (x <= high), nothing)
    edge = (x - low).abs() <= g.data * abs(low)
    edge = edge | ((x - high).abs() <= g.data * abs(high))
    return {"x": Either(value, g.grad.where(edge, value), nothing.where(edge, value))}


@rule("elu", "x")
def _elu(g: Given) -> Gradients:
    x, alpha = g["x"], float(g.scalars["alpha"])
    below = x.clamp(max=0)
    made = alpha * below.exp()
    # From the stored result: y + alpha.
    slope = both(made, g.saved(below.expm1() * alpha) + alpha)
    return {"x": step(x, g.grad * slope, g.grad)}


@rule("exp", "x")
def _exp(g: Given) -> Gradients:
    return {"x": g.grad * g.saved(g["x"].exp())}


@rule("log", "x")
def _log(g: Given) -> Gradients:
    return {"x": g.grad / g["x"]}


@rule("sigmoid", "x")
def _sigmoid(g: Given) -> Gradients:
    y = g.saved(g["x"].sigmoid())
    return {"x": product(g.grad, y, 1 - y)}


@rule("tanh", "x")
def _tanh(g: Given) -> Gradients:
    y = g.saved(g["x"].tanh())
    return {"x": g.grad * (1 - y * y)}


@rule("softplus", "x")
def _softplus(g: Given) -> Gradients:
    z = g["x"] * float(g.scalars["beta"])
    curved = g.grad * z.sigmoid()
    return {"x": g.grad.where(z > float(g.scalars["threshold"]), curved)}


def gelu_slope(x: "nm.Tensor") -> "nm.Tensor":
    """Return Phi(x) + x phi(x)."""
    below = 0.5 * (1 + (x * math.sqrt(0.5)).erf())
    density = (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
    return below + x * density


@rule("gelu", "x")
def _gelu(g: Given) -> Gradients:
    return {"x": g.grad * gelu_slope(g["x"])}


@rule("gelu_tanh", "x")
def _gelu_tanh(g: Given) -> Gradients:
    x = g["x"]
    root, cubic = math.sqrt(2 / math.pi), 0.044715
    t = ((x + cubic * (x * x * x)) * root).tanh()
    inner = (1 + 3 * cubic * (x * x)) * root
    slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner
    return {"x": g.grad * slope}


def silu_slope(x: "nm.Tensor") -> "nm.Tensor":
    """Return s (1 + x (1 - s)), s the sigmoid."""
    s = x.sigmoid()
    return s * (1 + x * (1 - s))


@rule("silu", "x")
def _silu(g: Given) -> Gradients:
    return {"x": g.grad * silu_slope(g["x"])}


@rule("swiglu", "gate", "up")
def _swiglu(g: Given) -> Gradients:
    gate = g["gate"]
    s = gate.sigmoid()
    return {
        "gate": product(g.grad, g["up"], silu_slope(gate)),
        "up": both(product(g.grad, gate, s), g.grad * g.saved(gate * s)),
    }


@rule("geglu", "gate", "up")
def _geglu(g: Given) -> Gradients:
    gate = g["gate"]
    below = 0.5 * (1 + (gate * math.sqrt(0.5)).erf())
    return {
        "gate": product(g.grad, g["up"], gelu_slope(gate)),
        "up": both(product(g.grad, gate, below), g.grad * g.saved(gate * below)),
    }
