"""index_add(x, index, src, *, alpha): rows, times alpha, added to indexed rows."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any, index: Any, src: Any, *, alpha: float) -> Any:
    """y[i, j] = x[i, j] + alpha times the sum of the src[k, j] with index[k] = i."""
    return x.index_add(0, index, src, alpha=alpha)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the acceptance of the sums in each column; see `scattered_sums`."""
    x, src = problem.tensors["x"], problem.tensors["src"]
    rows, _ = nm.resolved(problem, "index", x.shape[1])
    index = rows.unsqueeze(-1).expand_as(src)
    alpha = problem.number("alpha")
    return nm.scattered_sums(problem, x, index, src, dim=1, scale=alpha)


index_add = Operator(
    "index_add",
    inputs={
        "x": ks.tensors("V D"),
        "index": ks.indices("K", below="V"),
        "src": ks.tensors("K D"),
        "alpha": ks.scalar(1.0, (2.0, -1.0, 0.5, 0.1)),
    },
    oracle=reference,
    homogeneous={"x src": 1},
    error_model=accept,
    **bounded("index_add", Structure.INTERVAL),
)
