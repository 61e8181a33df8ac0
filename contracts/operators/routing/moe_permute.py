"""moe_permute(x, experts, count): tokens in the order of their experts."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import MOVES, Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any, experts: Any, *, count: int) -> Any:
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


def accept(problem: "nm.Problem") -> "nm.Accepted":
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


moe_permute = Operator(
    "moe_permute",
    inputs={
        "x": ks.tensors("M D"),
        "experts": ks.indices("M K", below="count"),
        "count": ks.scalar(4, (1, 2, 8, 17)),
    },
    oracle=reference,
    error_model=accept,
    outputs=("rows", "offsets", "source"),
    integers=("offsets", "source"),
    homogeneous={"x": 1},
    batch="",
    defaults=MOVES,
    workspaces=("M K D",),
    **bounded("moe_permute", Structure.EXACT),
)
