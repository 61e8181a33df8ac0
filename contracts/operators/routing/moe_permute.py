"""moe_permute(x, experts, count): tokens in the order of their experts."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import MOVES, Operator, Structure, Tolerance


def reference(x: Any, experts: Any, *, count: int) -> Any:
    """(x[source // K], offsets, source) of a stable sort of [M, K] experts.

    source [M K] are the places of the assignments in order of expert, offsets
    [count + 1] how many belong to earlier ones; both int64.
    """
    import torch

    flat = experts.flatten()
    source = torch.sort(flat, stable=True).indices
    edges = torch.arange(count + 1, device=flat.device)
    offsets = (flat < edges.unsqueeze(-1)).sum(-1)
    return x[source // max(experts.shape[1], 1)], offsets, source


def accept(problem: "nm.Problem") -> "nm.Accepted":
    """Return exact moves and integers."""
    import torch

    x, experts = problem.tensors["x"], problem.tensors["experts"]
    count = problem.axis("count")
    made = [
        reference(one, named.clamp(0, count - 1), count=count)
        for one, named in zip(x, experts, strict=True)
    ]
    rows, offsets, source = (torch.stack(part) for part in zip(*made, strict=True))
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
    tolerance=Tolerance(
        Structure.EXACT,
        "rows == x[source // K], experts[source] does not fall, equal ones in order",
        "a stable sort of integers; rows are copied",
    ),
    special_values="every value is copied, NaN as any NaN, -0 as -0",
)
