"""Mixtures of experts: routing, permutation and combination."""

from __future__ import annotations

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import MOVES, Structure
from kfuzz.contracts.prose import defined


def reference_grouped_matmul(x: Any, weight: Any, offsets: Any) -> Any:
    """y[p] = x[p] @ weight[e] for offsets[e] <= p < offsets[e + 1]."""
    import torch

    edges = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    parts = [x[a:b] @ w for (a, b), w in zip(edges, weight, strict=True)]
    return torch.cat(parts)


def accept_grouped_matmul(problem: nm.Problem) -> nm.Acceptance:
    """Return products +- R (|x| |weight|), of the group's matrix alone."""
    import torch

    t = problem.tensors
    weight, x, offsets = t["weight"], t["x"], t["offsets"]
    row = torch.arange(x.shape[1], device=x.device)
    group = (offsets[:, None, 1:] <= row[:, None]).sum(-1)
    group = group.clamp(max=weight.shape[1] - 1)
    item = torch.arange(x.shape[0], device=x.device).unsqueeze(-1)
    made = nm.dots(problem, x.unsqueeze(-2), weight[item, group])
    return made.reshaped(*x.shape[:-1], weight.shape[-1]).accepted(problem)


grouped_matmul = defined(
    "grouped_matmul",
    inputs={
        "x": ks.tensors("P D"),
        "weight": ks.tensors("E D F"),
        "offsets": ks.offsets("S", of="P"),
    },
    oracle=reference_grouped_matmul,
    error_model=accept_grouped_matmul,
    homogeneous={"x": 1, "weight": 1},
    reduced="D",
    shape_class="S == E + 1 and E >= 1",
    workspaces=("P D F",),
    usual={"E": 4},
)


def reference_moe_combine(y: Any, rows: Any, weights: Any) -> Any:
    """out[m] = sum over j of weights[m, j] y[rows[m, j]]."""
    return (weights.unsqueeze(-2) @ y[rows]).squeeze(-2)


def accept_moe_combine(problem: nm.Problem) -> nm.Acceptance:
    """Return sums of products +- R (|weights| |y|)."""
    t = problem.tensors
    y = t["y"]
    rows, _ = nm.resolved(problem, "rows", y.shape[1])
    item = rows.new_tensor(range(y.shape[0]))[:, None, None]
    made = nm.dots(problem, t["weights"].unsqueeze(-2), y[item, rows])
    return made.reshaped(*rows.shape[:-1], y.shape[-1]).accepted(problem)


moe_combine = defined(
    "moe_combine",
    inputs={
        "y": ks.tensors("P D"),
        "rows": ks.indices("M K", below="P"),
        "weights": ks.tensors("M K", role="weight"),
    },
    oracle=reference_moe_combine,
    error_model=accept_moe_combine,
    homogeneous={"y": 1, "weights": 1},
    reduced="K",
    batch="M",
    workspaces=("M K D",),
)


def reference_moe_permute(x: Any, experts: Any, *, count: int) -> Any:
    """(x[source // K], offsets, source) of a stable sort of [M, K] experts.

    source [M K] are the places of the assignments in order of expert, offsets
    [count + 1] how many belong to earlier ones; both int64.
    """
    rows, offsets, source = _sorted(x.unsqueeze(0), experts.unsqueeze(0), count)
    return rows[0], offsets[0], source[0]


def _sorted(x: Any, experts: Any, count: int) -> tuple[Any, Any, Any]:
    """Return the results of [items, M, D] and [items, M, K]."""
    import torch

    flat = experts.flatten(1)
    source = torch.sort(flat, stable=True).indices
    edges = torch.arange(count + 1, device=flat.device).unsqueeze(-1)
    offsets = (flat.unsqueeze(1) < edges).sum(-1)
    token = (source // max(experts.shape[2], 1)).unsqueeze(-1)
    rows = x.gather(1, token.expand(-1, -1, x.shape[2]))
    return rows, offsets, source


def accept_moe_permute(problem: nm.Problem) -> nm.Accepted:
    """Return exact moves and integers."""
    count = problem.axis("count")
    experts, _ = nm.resolved(problem, "experts", count)
    rows, offsets, source = _sorted(problem.tensors["x"], experts, count)
    whole = nm.INTEGERS["int64"]
    return {
        "rows": nm.moved(problem, rows),
        "offsets": nm.around(problem, offsets.double(), 0.0, output=whole),
        "source": nm.around(problem, source.double(), 0.0, output=whole),
    }


moe_permute = defined(
    "moe_permute",
    inputs={
        "x": ks.tensors("M D"),
        "experts": ks.indices("M K", below="count"),
        "count": ks.scalar(4, (1, 2, 8, 17)),
    },
    oracle=reference_moe_permute,
    error_model=accept_moe_permute,
    outputs=("rows", "offsets", "source"),
    integers=("offsets", "source"),
    homogeneous={"x": 1},
    batch="",
    defaults=MOVES,
    workspaces=("M K D",),
    structure=Structure.EXACT,
)


def reference_topk_routing(logits: Any, *, k: int, renormalize: bool) -> Any:
    """The k greatest of softmax(logits), sorted, and their indices, int64.

    With `renormalize` divided by their sum. Weights are stored in float32.
    """
    import torch

    p = torch.softmax(logits, -1)
    weights, indices = p.sort(dim=-1, descending=True, stable=True)
    weights, indices = weights[..., :k], indices[..., :k]
    if renormalize:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights, indices


def relate_topk_routing(problem: nm.Problem, outputs: nm.Tensors) -> nm.Tensors:
    """Each index names one of the k greatest, none twice, with its own weight."""
    return nm.sampling.consistent(problem, outputs)


topk_routing = defined(
    "topk_routing",
    inputs={
        "logits": ks.tensors("M E"),
        "k": ks.scalar(2, (1, 4, 6, 8)),
        "renormalize": ks.scalar(False, (True,)),
    },
    oracle=reference_topk_routing,
    error_model=lambda problem: nm.sampling.routed(problem),
    relation=relate_topk_routing,
    outputs=("weights", "indices"),
    integers=("indices",),
    reduced="E",
    empty_reduction=False,
    shape_class="k <= E and E >= 1",
    batch="M",
    recentres=True,
    structure=Structure.COMPOSITE,
)
