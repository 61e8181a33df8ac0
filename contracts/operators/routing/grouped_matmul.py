"""grouped_matmul(x, weight, offsets): rows times the matrix of their group."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any, weight: Any, offsets: Any) -> Any:
    """y[p] = x[p] @ weight[e] for offsets[e] <= p < offsets[e + 1]."""
    import torch

    edges = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    parts = [x[a:b] @ w for (a, b), w in zip(edges, weight, strict=True)]
    return torch.cat(parts)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
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


grouped_matmul = Operator(
    "grouped_matmul",
    inputs={
        "x": ks.tensors("P D"),
        "weight": ks.tensors("E D F"),
        "offsets": ks.offsets("S", of="P"),
    },
    oracle=reference,
    error_model=accept,
    homogeneous={"x": 1, "weight": 1},
    reduced="D",
    shape_class="S == E + 1 and E >= 1",
    workspaces=("P D F",),
    usual={"E": 4},
    **bounded("grouped_matmul", Structure.INTERVAL),
)
