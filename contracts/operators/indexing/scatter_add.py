"""scatter_add(x, index, src): elements added where indices along the last axis say."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any, index: Any, src: Any) -> Any:
    """y[i, j] = x[i, j] + the sum of the src[i, k] with index[i, k] = j."""
    return x.scatter_add(-1, index, src)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return sums +- gamma(c) (|x| + sum|src|) for c sources; see `scattered_sums`."""
    x, src = problem.tensors["x"], problem.tensors["src"]
    index, _ = nm.resolved(problem, "index", x.shape[-1])
    return nm.scattered_sums(problem, x, index, src)


scatter_add = Operator(
    "scatter_add",
    inputs={
        "x": ks.tensors("N C"),
        "index": ks.indices("N K", below="C"),
        "src": ks.tensors("N K"),
    },
    oracle=reference,
    homogeneous={"x src": 1},
    error_model=accept,
    batch="N",
    **bounded("scatter_add", Structure.INTERVAL),
)
