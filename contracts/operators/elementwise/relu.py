"""relu(x): max(x, 0), elementwise."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import EVERY_DTYPE, MOVES, Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any) -> Any:
    """torch.relu(x): x where x > 0, else 0; NaN stays NaN."""
    import torch

    return torch.relu(x)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the exact acceptance: relu only selects."""
    return nm.around(problem, reference(problem.tensors["x"]), 0.0)


relu = Operator(
    "relu",
    inputs={"x": ks.tensors("*")},
    oracle=reference,
    homogeneous={"x": 1},
    error_model=accept,
    ranks=range(5),
    defaults=MOVES,
    dtypes=EVERY_DTYPE,
    **bounded("relu", Structure.EXACT),
)
