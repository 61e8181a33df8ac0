"""weight_norm(v, g): rows of v scaled to the Euclidean norms g."""

from typing import Any

from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure, Tolerance


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
    tolerance=Tolerance(
        Structure.INTERVAL,
        "as the running-error shadow derives it from the reference, four times",
        "K squares and their sum in any order; a root and a division, or rsqrt and a "
        "product; one more product",
    ),
    special_values="a row of zeros is NaN; a row with NaN is NaN throughout; undecided "
    "where squares overflow or vanish",
)
