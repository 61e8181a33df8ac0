"""weight_norm(v, g): rows of v scaled to the Euclidean norms g."""

from typing import Any

from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(v: Any, g: Any) -> Any:
    """Rows v g / sqrt(sum v^2) over the last dimension."""
    return v * (g[:, None] / (v * v).sum(-1, keepdim=True).sqrt())


weight_norm = Operator(
    "weight_norm",
    inputs={"v": ks.tensors("O K"), "g": ks.tensors("O", role="weight")},
    oracle=reference,
    homogeneous={"g": 1},
    reduced="K",
    batch="O",
    **bounded("weight_norm", Structure.INTERVAL),
)
