"""bmm(a, b): a matrix product per batch."""

from typing import Any

from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.operators.products.matmul import accept
from kfuzz.contracts.prose import bounded


def reference(a: Any, b: Any) -> Any:
    """torch.bmm(a, b), a [B, M, K], b [B, K, N]."""
    import torch

    return torch.matmul(a, b)


bmm = Operator(
    "bmm",
    inputs={"a": ks.tensors("B M K"), "b": ks.tensors("B K N")},
    oracle=reference,
    homogeneous={"a": 1, "b": 1},
    error_model=accept,
    batch="B",
    reduced="K",
    # The result, which is no argument.
    workspaces=("B M N",),
    usual={"B": 2},
    **bounded("bmm", Structure.INTERVAL),
)
