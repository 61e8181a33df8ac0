"""How the gradients of each of kfuzz's own operators are judged.

Most are derived: autograd's steps through the operator's oracle, or through a form of
it that takes the steps of kernels, run under the running-error shadow, which gives
the vector-Jacobian product and its bound at once. Where kernels take steps that
autograd does not, a formula spells them out.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz.contracts.operators.elementwise import reference_clamp, reference_silu
from kfuzz.contracts.operators.products import reference_linear
from kfuzz.contracts.operators.reductions import (
    accept_sum,
    cross_entropy_by_lse,
    reference_cross_entropy,
    reference_var,
)

Exact = Callable[["nm.Problem"], "nm.Acceptance"]
Relation = Callable[["nm.Problem", "nm.Tensors"], "nm.Tensors"]
Gradients = dict[str, "nm.Tensor"]

PREFIX: Final = "grad_"
# The keyword by which a formula gets the dtype in which results are stored.
STORED: Final = "stored"
# Every result of the forward and of the backward pass, see `Rule.stored`.
EVERY: Final = "*"


@dataclass(frozen=True)
class Given:
    """One member's problem, as a formula sees it.

    Attributes:
        tensors: float64 arguments of the forward operator, by name; an optional one
            that the implementation does without is absent.
        grads: float64 gradients of the outputs, by output.
        scalars: the scalar arguments; `dim` is negative.
        stored: the dtype in which results are stored; None where nothing is rounded.
    """

    tensors: "nm.Tensors"
    grads: "nm.Tensors"
    scalars: Mapping[str, Any]
    stored: Any = None

    def __getitem__(self, name: str) -> "nm.Tensor":
        """Return an argument of the forward operator."""
        return self.tensors[name]

    @property
    def grad(self) -> "nm.Tensor":
        """The gradient of the only output."""
        return next(iter(self.grads.values()))

    def saved(self, y: "nm.Tensor") -> "nm.Tensor":
        """Return a forward result as a kernel may have kept it: rounded, or not."""
        return y if self.stored is None else y.to(self.stored)


@dataclass(frozen=True)
class Rule:
    """How an operator is differentiated.

    Attributes:
        inputs: the arguments in which it is differentiable.
        outputs: dimension names of its differentiable outputs.
        formula: returns the gradient with respect to each of `inputs` that the
            implementation takes; None where the gradients are derived.
        forms: forms of the oracle whose derivatives take the steps of kernels; what
            lies between those of two is right. None for the oracle itself.
        linear: whether the operator is linear in each argument: its gradients are
            sums of products in one form, and no safety covers others.
        stored: the results that a kernel may have kept rounded to the output's format,
            as torch's names of the operators that give them, or `EVERY`.
        lacks: the parameter that selects the axis which the output lacks.
        exact: by argument a bound that needs no shadow.
        accept: a relation between the gradients, see `kfuzz.contracts.oracle`.
        variants: by suffix the values to which scalars are limited, where the shape of
            the output depends on them, with the dimension names.
    """

    inputs: tuple[str, ...]
    outputs: Mapping[str, str]
    formula: Callable[[Given], Gradients] | None = None
    forms: tuple[Callable[..., Any], ...] = ()
    linear: bool = False
    stored: str = ""
    lacks: str = ""
    exact: Mapping[str, "Exact"] = field(default_factory=dict)
    accept: "Relation | None" = None
    variants: Mapping[str, tuple[Mapping[str, tuple[Any, ...]], str]] = field(
        default_factory=dict
    )


RULES: Final[dict[str, Rule]] = {}
"""The rules by operator."""


def derived(
    name: str, inputs: str, dims: str | Mapping[str, str] = "*", **more: Any
) -> None:
    """Enter the rule of an operator.

    Args:
        name: of the operator.
        inputs: the arguments in which it is differentiable, separated by spaces.
        dims: dimension names of its output, or of each.
        more: other fields of the rule.
    """
    outputs = {"y": dims} if isinstance(dims, str) else dict(dims)
    RULES[name] = Rule(tuple(inputs.split()), outputs, **more)


def grad(problem: "nm.Problem") -> "nm.Tensor":
    """Return the gradient of the output y."""
    return problem.tensors[PREFIX + "y"]


for _name, _inputs, _dims in (
    ("copy", "x", "*"),
    ("add", "a b", "*"),
    ("mul", "a b", "*"),
    ("where", "x y", "*"),
    ("cumsum", "x", "*"),
    ("transpose", "x", "* N M"),
    ("matmul", "a b", "M N"),
    ("bmm", "a b", "B M N"),
    ("linear", "x weight bias", "* N"),
    ("embedding", "weight", "* D"),
    ("index_select", "x", "K D"),
    ("gather", "x", "N K"),
    ("scatter_add", "x src", "N C"),
    ("index_add", "x src", "V D"),
):
    derived(_name, _inputs, _dims, linear=True)
derived("sum", "x", lacks="dim", linear=True)
derived("mean", "x", lacks="dim", linear=True)
for _name in ("log", "gelu", "silu"):
    derived(_name, "x")
for _name in ("exp", "sigmoid", "tanh"):
    derived(_name, "x", stored=_name)
derived("softmax", "x", stored="_softmax")
derived("log_softmax", "x", stored="_log_softmax")
derived("logsumexp", "x", lacks="dim", stored="logsumexp")
# The sums over heads and repeated columns are one, in any order: not linear's bound.
derived("rope", "x cos sin", "B S H D")


def kinked(below: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    """Return x above 0 and a function of it below, with either slope at 0."""
    return (
        lambda x, **scalars: x.where(x > 0, below(x, **scalars)),
        lambda x, **scalars: x.where(x >= 0, below(x, **scalars)),
    )


def inside(x: "nm.Tensor", *, min: float, max: float) -> "nm.Tensor":
    """X between two bounds, and 0 at them and beyond."""
    return x.where((x > min) & (x < max), x.new_zeros(()))


def variance(x: "nm.Tensor", *, dim: int, correction: int) -> "nm.Tensor":
    """The variance, whose gradient is NaN, too, where it is."""
    made: nm.Tensor = reference_var(x, dim=dim, correction=correction)
    return made if x.shape[dim] > correction else x.sum(dim) * math.nan


def gelu_by_erf(x: "nm.Tensor") -> "nm.Tensor":
    """The product x / 2 * (1 + erf(x / sqrt 2))."""
    return 0.5 * x * (1 + (x * math.sqrt(0.5)).erf())


def gelu_by_tanh(x: "nm.Tensor") -> "nm.Tensor":
    """The product x / 2 * (1 + tanh t)."""
    return 0.5 * x * (1 + nm.gelu_tanh_argument(x).tanh())


def after_linear(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of x weight^T + bias as it may have been kept."""
    return lambda *given: function(reference_linear(*given).clone())


def gated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the product of a function of gate, as it may have been kept, and up."""
    return lambda gate, up: function(gate).clone() * up


RELU: Final = kinked(lambda x: x.new_zeros(()))
derived("relu", "x", forms=RELU)
derived("leaky_relu", "x", forms=kinked(lambda x, negative_slope: negative_slope * x))
derived(
    "elu",
    "x",
    forms=kinked(lambda x, alpha: alpha * x.clamp(max=0).expm1()),
    stored="expm1",
)
# The bounds may be rounded to the data's format.
derived("clamp", "x", forms=(reference_clamp, inside), stored=EVERY)
derived("gelu_tanh", "x", forms=(gelu_by_tanh,))
derived("var", "x", lacks="dim", forms=(variance,))
derived("swiglu", "gate up", forms=(gated(reference_silu),), stored="clone")
derived("geglu", "gate up", forms=(gated(gelu_by_erf),), stored="clone")
derived(
    "linear_relu", "x weight bias", "* N",
    forms=(after_linear(RELU[0]),), stored="clone",
)  # fmt: skip
# What lies between the two products may be stored, too.
derived(
    "linear_gelu", "x weight bias", "* N",
    forms=(after_linear(gelu_by_erf),), stored="clone mul",
)  # fmt: skip
# Libraries keep logsumexp(x), and have exp(x - logsumexp(x)) for a softmax.
derived(
    "cross_entropy",
    "logits",
    "",
    forms=(reference_cross_entropy, cross_entropy_by_lse),
    variants={
        "": ({"reduction": ("mean", "sum")}, ""),
        "_none": ({"reduction": ("none",)}, "N"),
    },
)


# Selections: equal elements share the gradient in any way that adds up.


def selected(*, greatest: bool) -> dict[str, Any]:
    """Return the bound of an extremum's gradient, and what its shares add up to."""

    def chosen(problem: "nm.Problem") -> "tuple[nm.Tensor, nm.Tensor, nm.Tensor]":
        """Return where a row's extremum is, how often, and the gradient of each."""
        dim, x = problem.axis(), problem.tensors["x"]
        top = x.amax(dim, keepdim=True) if greatest else x.amin(dim, keepdim=True)
        found = x == top
        return found, found.sum(dim, keepdim=True), grad(problem).unsqueeze(dim)

    def bound(problem: "nm.Problem") -> "nm.Acceptance":
        """Return grad_y at the extremum, any part of it at one of several."""
        import torch

        found, ties, spread = chosen(problem)
        several = found & (ties > 1)
        value = torch.where(found, spread / ties.clamp(min=1), 0.0)
        alone = torch.where(found, spread, 0.0)
        low = torch.where(several, alone.clamp(max=0), alone)
        high = torch.where(several, alone.clamp(min=0), alone)
        return nm.between(problem, torch.where(several, value, alone), low, high)

    def accept(problem: "nm.Problem", outputs: "nm.Tensors") -> "nm.Tensors":
        """The shares of equal elements add up to grad_y."""
        found, ties, spread = chosen(problem)
        made = outputs["dx"].to(spread.dtype)
        total = made.where(found, made.new_zeros(())).sum(problem.axis(), keepdim=True)
        # Each share is rounded twice, and may be flushed.
        room = 2 * problem.output.unit * spread.abs() + problem.output.min_normal
        right = ((total - spread).abs() <= ties * room) | ~total.isfinite()
        return {"dx": right | (ties < 2) | ~found}

    return {"exact": {"x": bound}, "accept": accept}


derived("amax", "x", lacks="dim", **selected(greatest=True))
derived("amin", "x", lacks="dim", **selected(greatest=False))


# Formulas.


def both(one: "nm.Tensor", other: "nm.Tensor") -> "nm.Tensor":
    """Return a number that kernels form in either of two ways.

    They are equal; under the shadow half of the greater error remains, of which the
    shadow's safety makes twice that error.
    """
    return (one + other) / 2


def summed(taken: Callable[["nm.Problem"], "nm.Tensor"], dim: int) -> Exact:
    """Return the bound of a sum along a dimension, in any order."""
    return lambda problem: accept_sum(
        replace(problem, tensors={"x": taken(problem)}, scalars={"dim": dim})
    )


def formula(
    name: str, inputs: str, dims: str | Mapping[str, str] = "*", **more: Any
) -> Callable[[Callable[[Given], Gradients]], Callable[[Given], Gradients]]:
    """Enter the rule of an operator with a formula; arguments as of `derived`."""

    def register(
        given: Callable[[Given], Gradients],
    ) -> Callable[[Given], Gradients]:
        derived(name, inputs, dims, formula=given, **more)
        return given

    return register


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


@formula("layer_norm", "x weight bias", "* N", exact={"bias": summed(_of_rows, 1)})
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


@formula("rms_norm", "x weight", "* N")
def _rms_norm(g: Given) -> Gradients:
    grad, weight = g.grad, g.tensors.get("weight")
    wg = grad if weight is None else grad * weight
    z, made = _scaled(g["x"], wg, float(g.scalars["eps"]))
    return {"x": made, "weight": _rows(g, grad * z).sum(0)}


@formula("add_rms_norm", "x residual weight", {"y": "* N", "h": "* N"})
def _add_rms_norm(g: Given) -> Gradients:
    grad, weight = g.grads["y"], g.tensors.get("weight")
    h = g.saved(g["x"] + g["residual"])
    wg = grad if weight is None else grad * weight
    z, made = _scaled(h, wg, float(g.scalars["eps"]))
    made = g.saved(made) + g.grads["h"]
    return {"x": made, "residual": made, "weight": _rows(g, grad * z).sum(0)}


@formula("group_norm", "x weight bias", "B C L", exact=_BY_CHANNEL)
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


@formula("batch_norm", "x weight bias", "B C L", exact=_BY_CHANNEL)
def _batch_norm(g: Given) -> Gradients:
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


@formula("l2_normalize", "x")
def _l2_normalize(g: Given) -> Gradients:
    x, dim, eps = g["x"], int(g.scalars["dim"]), float(g.scalars["eps"])
    norm = (x * x).sum(dim, keepdim=True).sqrt()
    held = norm.clamp(min=eps)
    y = g.saved(x / held)
    plain = g.grad / held
    one = plain - y * ((g.grad * y).sum(dim, keepdim=True) / held)
    other = plain - x * ((g.grad * x).sum(dim, keepdim=True) / (held * held * held))
    return {"x": both(one, other).where(norm > eps, g.grad / eps)}


@formula("softplus", "x")
def _softplus(g: Given) -> Gradients:
    z = g["x"] * float(g.scalars["beta"])
    curved = g.grad * z.sigmoid()
    return {"x": g.grad.where(z > float(g.scalars["threshold"]), curved)}


@formula("attention", "q k v", "B H S D")
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
