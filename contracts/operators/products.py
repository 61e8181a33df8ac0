"""Matrix products, linear layers and attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.aten.rows import describes
from kfuzz.contracts.gradients.rules import Given, Gradients, both, differentiable
from kfuzz.contracts.operator import Structure
from kfuzz.contracts.operators.elementwise import (
    RELU,
    gelu_by_erf,
    of_torch,
    reference_gelu,
)
from kfuzz.contracts.prose import bounded, defined
from kfuzz.core.declaration import Declaration


def with_lse(
    q: Any, k: Any, v: Any, mask: Any = None, sinks: Any = None, *, causal: bool, scale:
    float | None, window: int | None = None, softcap: float | None = None,
    causal_alignment: str = "top_left",
) -> tuple[Any, Any]:  # fmt: skip
    """Attention, and the log of each row's sum of exponentials [B, H, S]."""
    import torch

    heads, groups = q.shape[1], k.shape[1]
    k = k.repeat_interleave(heads // groups, 1)
    v = v.repeat_interleave(heads // groups, 1)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = scale * (q @ k.transpose(-1, -2))
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        scores = scores + mask
    seen = nm.visible(
        q.shape[2], k.shape[2], causal=causal, window=window,
        bottom=causal_alignment == "bottom_right", like=q,
    )  # fmt: skip
    scores = scores.masked_fill(~seen, -math.inf)
    if sinks is not None:
        more = sinks[:, None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat((scores, more), -1)
        v = torch.nn.functional.pad(v, (0, 0, 0, 1))
    void = (scores == -math.inf).all(-1, keepdim=True)
    weights = torch.softmax(scores, -1).masked_fill(void, 0.0)
    return weights @ v, torch.logsumexp(scores, -1)


@wraps(with_lse, ())
def reference_attention(*tensors: Any, **scalars: Any) -> Any:
    """softmax(scale q k^T + mask) v; head h uses the keys of group h // (H / G).

    With `softcap` c scores are c tanh(scale q k^T / c) before the mask; with `window` w
    a query at i sees keys at j with |i - j| < w alone; a head's sink is one more score
    of each of its rows, without a value. A row without visible keys has weights 0.
    """
    return with_lse(*tensors, **scalars)[0]


# A window that no power of two divides, and one that hides all but a query's own key.
WINDOWS: Final = (1, 2, 7, 16, 33)
CAPS: Final = (1.0, 30.0, 50.0)


def attention_gradients(g: Given) -> Gradients:
    """By the weights, which kernels keep or compute again."""
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


attention = defined(
    "attention",
    inputs={
        "q": ks.tensors("B H S D"),
        "k": ks.tensors("B G T D"),
        "v": ks.tensors("B G T D"),
        "mask": ks.tensors("S T", role="mask", optional=True),
        "sinks": ks.tensors("H", role="bias", optional=True),
        "causal": ks.scalar(False, domain=(True,)),
        "scale": ks.scalar(None, domain=(1.0, 0.125)),
        "window": ks.scalar(None, domain=WINDOWS),
        "softcap": ks.scalar(None, domain=CAPS),
    },
    oracle=reference_attention,
    error_model=lambda problem: nm.attend(problem),
    chain=("matmul", "softmax", "matmul"),
    batch="B",
    reduced="T",
    shape_class="G >= 1 and H >= 1 and D >= 1 and H % G == 0",
    # The scores, and keys and values repeated for every head.
    workspaces=("B H S T", "B H T D"),
    usual={"B": 2, "H": 2, "G": 2},
    # What matrix units need: weights as operands in the data's format.
    defaults=Declaration(intermediates="output"),
    algorithms={
        "stored_query": "queries times the scale are rounded to the data's format",
        "unfused": "scaled operands and scores are rounded to the data's format, as in "
        "a chain of library calls",
    },
    gradient=differentiable("q k v", "B H S D", formula=attention_gradients),
    aten=describes(
        "scaled_dot_product_attention",
        "query=q key=k value=v attn_mask=mask is_causal=causal scale enable_gqa=True",
        unfolded={"B": "*"},
    ),
)


attention_lse = replace(
    attention,
    name="attention_lse",
    # Whether a sink is part of the sum is not agreed upon.
    inputs={n: p for n, p in attention.inputs.items() if n != "sinks"},
    oracle=with_lse,
    error_model=lambda problem: nm.attend_with_lse(problem),
    outputs=("y", "lse"),
    chain=(),
    **bounded("attention_lse", Structure.INTERVAL),
    gradient=None,
    aten=(),
)


def reference_attention_paged(
    q: Any, k: Any, v: Any, pages: Any, lengths: Any, *, limit: int, **how: Any,
) -> Any:  # fmt: skip
    """Attention of the query of each sequence i with its first lengths[i] keys.

    Key j is k[pages[i, j // W], j % W], with pages of W keys; lengths are below
    `limit`.
    """
    import torch

    y = torch.zeros(*q.shape[:2], v.shape[-1], dtype=q.dtype, device=q.device)
    for i, length in enumerate(lengths.tolist()):
        keys, values = (
            t[pages[i]].flatten(0, 1)[:length].transpose(0, 1).unsqueeze(0)
            for t in (k, v)
        )
        row = q[i].unsqueeze(1).unsqueeze(0)
        made = reference_attention(row, keys, values, causal=False, **how)
        y[i] = made[0, :, 0]
    return y


def accept_attention_paged(problem: nm.Problem) -> nm.Acceptance:
    """Return attention's acceptance, of the pages in the order of the table."""
    import torch

    t = problem.tensors
    table, _ = nm.resolved(problem, "pages", t["k"].shape[1])
    item = torch.arange(table.shape[0], device=table.device)[:, None, None]
    # [members, B, L W, G, D] as [members, B, G, L W, D].
    k, v = (t[n][item, table].flatten(2, 3).transpose(2, 3) for n in ("k", "v"))
    q = t["q"].unsqueeze(3)
    place = torch.arange(k.shape[3], device=k.device)
    inside = place < t["lengths"].unsqueeze(-1)
    inside = inside[:, :, None, None]
    scalars = {**problem.scalars, "causal": False}
    posed = replace(problem, tensors={"q": q, "k": k, "v": v}, scalars=scalars)
    made = nm.attend_with_lse(posed, (inside, inside))["y"]
    return nm.reshaped(made, (*t["q"].shape[:3], v.shape[-1]))


attention_paged = replace(
    attention,
    name="attention_paged",
    inputs={
        "q": ks.tensors("B H D"),
        "k": ks.tensors("P W G D"),
        "v": ks.tensors("P W G D"),
        "pages": ks.indices("B L", below="P"),
        "lengths": ks.indices("B", below="limit"),
        "limit": ks.scalar(16, domain=(1, 2, 8, 33, 64)),
        "scale": attention.inputs["scale"],
        "softcap": attention.inputs["softcap"],
    },
    oracle=reference_attention_paged,
    error_model=accept_attention_paged,
    chain=(),
    shape_class="G >= 1 and H >= 1 and D >= 1 and W >= 1 and L >= 1 and H % G == 0 "
    "and limit <= L * W + 1",
    workspaces=("B H L W D",),
    usual={"B": 2, "H": 2, "G": 2, "W": 8, "L": 4},
    reduced=None,
    # Nothing checks tables of pages.
    defaults=Declaration(intermediates="output", out_of_bounds="undefined"),
    special_values=f"{attention.special_values}; keys beyond a length do not count",
    gradient=None,
    aten=(),
)


def reference_attention_varlen(
    q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, *, max_q: int | None = None, max_k:
    int | None = None, **how: Any,
) -> Any:  # fmt: skip
    """Attention of each sequence i, rows cu[i] to cu[i + 1] of tokens, by itself.

    `max_q` and `max_k` are the lengths of the longest.
    """
    import torch

    y = torch.zeros(*q.shape[:2], v.shape[-1], dtype=q.dtype, device=q.device)
    edges = zip(cu_q[:-1], cu_q[1:], cu_k[:-1], cu_k[1:], strict=True)
    for first, last, low, high in (map(int, e) for e in edges):
        rows = [
            t.transpose(0, 1).unsqueeze(0)
            for t in (q[first:last], k[low:high], v[low:high])
        ]
        y[first:last] = reference_attention(*rows, **how)[0].transpose(0, 1)
    return y


def accept_attention_varlen(problem: nm.Problem) -> nm.Acceptance:
    """Return attention's acceptance, the tokens of other sequences hidden."""
    t = problem.tensors
    q, k, v = (t[n].transpose(1, 2).unsqueeze(1) for n in ("q", "k", "v"))
    of_q, at, queries = _places(t["cu_q"], q.shape[3])
    of_k, key, _ = _places(t["cu_k"], k.shape[3])
    inside = of_q.unsqueeze(-1) == of_k.unsqueeze(-2)
    ahead = key.unsqueeze(-2) - at.unsqueeze(-1)
    if problem.declaration.causal_alignment == "bottom_right":
        count = (t["cu_k"][:, 1:] - t["cu_k"][:, :-1]).gather(1, of_q)
        ahead = ahead - (count - queries).unsqueeze(-1)
    seen = inside
    if problem.scalars["causal"]:
        seen = seen & (ahead <= 0)
    if (window := problem.scalars["window"]) is not None:
        seen = seen & (ahead.abs() < int(window))
    reach = (seen[:, None, None], inside[:, None, None])
    posed = replace(problem, tensors={"q": q, "k": k, "v": v})
    made = nm.attend_with_lse(posed, reach)["y"]
    shape = (*t["q"].shape[:3], v.shape[-1])
    return made.mapped(lambda x: x.squeeze(1).transpose(1, 2).reshape(shape))


def _places(offsets: Any, tokens: int) -> tuple[Any, Any, Any]:
    """Return of each token its sequence, its place there and the sequence's length."""
    import torch

    every = torch.arange(tokens, device=offsets.device)
    of = (offsets[:, None, 1:] <= every[:, None]).sum(-1)
    of = of.clamp(max=offsets.shape[1] - 2)
    first, last = offsets.gather(1, of), offsets.gather(1, of + 1)
    return of, every - first, last - first


attention_varlen = replace(
    attention,
    name="attention_varlen",
    inputs={
        "q": ks.tensors("N H D"),
        "k": ks.tensors("T G D"),
        "v": ks.tensors("T G D"),
        "cu_q": ks.offsets("C", of="N"),
        "cu_k": ks.offsets("C", of="T"),
        "causal": attention.inputs["causal"],
        "scale": attention.inputs["scale"],
        "window": attention.inputs["window"],
        "softcap": attention.inputs["softcap"],
        "max_q": ks.longest("cu_q"),
        "max_k": ks.longest("cu_k"),
    },
    oracle=reference_attention_varlen,
    error_model=accept_attention_varlen,
    chain=(),
    batch="",
    workspaces=("H N T", "H T D"),
    usual={"H": 2, "G": 2, "C": 4},
    special_values=f"{attention.special_values}; other sequences do not count",
    gradient=None,
    aten=(),
)


def accept_matmul(problem: nm.Problem) -> nm.Acceptance:
    """Return a b +- R (|a| |b|), R that of the declared accumulation.

    By default gamma(K+1, u) for float32 operands and the greater of it and
    2.5 (K + 4) u for 16-bit ones, whose products are exact and whose sums
    tensor cores truncate; 0 where the exactness test holds.
    """
    made = nm.dots(problem, problem.tensors["a"], problem.tensors["b"])
    return made.accepted(problem)


matmul = defined(
    "matmul",
    inputs={"a": ks.tensors("M K"), "b": ks.tensors("K N")},
    oracle=of_torch("matmul", "torch.matmul(a, b), a [M, K], b [K, N]."),
    homogeneous={"a": 1, "b": 1},
    error_model=accept_matmul,
    batch="M",
    reduced="K",
    gradient=differentiable("a b", "M N", linear=True),
    aten=describes("mm", "self=a mat2=b"),
)


bmm = defined(
    "bmm",
    inputs={"a": ks.tensors("B M K"), "b": ks.tensors("B K N")},
    oracle=of_torch("matmul", "torch.bmm(a, b), a [B, M, K], b [B, K, N]."),
    homogeneous={"a": 1, "b": 1},
    error_model=accept_matmul,
    batch="B",
    reduced="K",
    # The result, which is no argument.
    workspaces=("B M N",),
    usual={"B": 2},
    gradient=differentiable("a b", "B M N", linear=True),
    aten=describes("bmm", "self=a mat2=b")
    + describes("matmul", "self=a other=b", unfolded={"B": "*"}),
)


INPUTS: Final = {
    "x": ks.tensors("* K"),
    "weight": ks.tensors("N K"),
    "bias": ks.tensors("N", role="bias", optional=True),
}


def reference_linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """torch.nn.functional.linear(x, weight, bias)."""
    made = x @ weight.transpose(-1, -2)
    return made if bias is None else made + bias


def products(problem: nm.Problem) -> nm.Dots:
    """Return x weight^T + bias before the store, [members, *, N]."""
    x, weight = problem.tensors["x"], problem.tensors["weight"]
    bias = problem.tensors.get("bias")
    members, n, inner = weight.shape
    flat = x.reshape(members, math.prod(x.shape[1:-1]), inner)
    addend = None if bias is None else bias.unsqueeze(-2)
    made = nm.dots(problem, flat, weight.transpose(-1, -2), addend=addend)
    if addend is not None:
        made = nm.rounded_before(problem, made, addend)
    return made.reshaped(*x.shape[:-1], n)


linear = defined(
    "linear",
    inputs=INPUTS,
    oracle=reference_linear,
    homogeneous={"x bias": 1, "weight bias": 1},
    error_model=lambda problem: products(problem).accepted(problem),
    reduced="K",
    gradient=differentiable("x weight bias", "* N", linear=True),
    aten=describes("linear", "input=x weight bias"),
)


def reference_linear_gelu(x: Any, weight: Any, bias: Any = None) -> Any:
    """torch.nn.functional.gelu(torch.nn.functional.linear(x, weight, bias))."""
    return reference_gelu(reference_linear(x, weight, bias))


def accept_linear_gelu(problem: nm.Problem) -> nm.Acceptance:
    """Return what gelu makes of linear's interval, with gelu's own error.

    With intermediates="output" that interval is rounded to the output first; with
    algorithm="tanh_form" gelu is its tanh approximation.
    """
    import torch

    made = products(problem)
    arithmetic = nm.Arithmetic.declared(problem)
    before = nm.Interval(made.value - made.error, made.value + made.error)
    if problem.declaration.intermediates == "output":
        before = arithmetic.rounded(before)
    approximate = problem.declaration.algorithm == "tanh_form"
    bounds = (nm.gelu_tanh if approximate else nm.gelu)(before, arithmetic)
    z = made.reference
    y = (
        torch.nn.functional.gelu(z, approximate="tanh")
        if approximate
        else reference_gelu(z)
    )
    lowest = z == float("-inf")
    zero = torch.zeros_like(z)
    y = torch.where(lowest, zero, y)
    loose = (made.admitted & nm.NAN) != 0
    classes = nm.limit_classes(z, y)
    top = made.value.abs() + made.error
    return nm.between(
        problem,
        y,
        torch.where(lowest, zero, bounds.low),
        torch.where(lowest, zero, bounds.high),
        classes=torch.where(loose, classes | nm.NAN, classes).to(torch.uint8),
        ambiguous=made.classes.ambiguous | nm.doubling_overflows(top, arithmetic),
    )


def after_linear(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of x weight^T + bias as it may have been kept."""
    return lambda *given: function(reference_linear(*given).clone())


linear_gelu = defined(
    "linear_gelu",
    inputs=INPUTS,
    oracle=reference_linear_gelu,
    error_model=accept_linear_gelu,
    chain=("linear", "gelu"),
    reduced="K",
    algorithms={"tanh_form": "gelu is its tanh approximation"},
    # What lies between the two products may be stored, too.
    gradient=differentiable(
        "x weight bias", "* N", forms=(after_linear(gelu_by_erf),), stored="clone mul"
    ),
)


def reference_linear_relu(x: Any, weight: Any, bias: Any = None) -> Any:
    """torch.relu(torch.nn.functional.linear(x, weight, bias))."""
    import torch

    return torch.relu(reference_linear(x, weight, bias))


linear_relu = defined(
    "linear_relu",
    inputs=INPUTS,
    oracle=reference_linear_relu,
    homogeneous={"x bias": 1, "weight bias": 1},
    forms={"": (reference_linear_relu,)},
    chain=("linear", "relu"),
    reduced="K",
    gradient=differentiable(
        "x weight bias", "* N", forms=(after_linear(RELU[0]),), stored="clone"
    ),
)
