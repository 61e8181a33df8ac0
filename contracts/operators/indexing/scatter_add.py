"""scatter_add(x, index, src): elements added where indices along the last axis say."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure, Tolerance


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
    tolerance=Tolerance(
        Structure.INTERVAL,
        "RNE(s - E) <= y <= RNE(s + E), E = gamma(c, u) (|x| + sum|src|) with c "
        "sources of the element; E = 0 where every order is exact, or c = 0",
        "c additions in any order in the declared accumulator (Higham eq. 4.6), then "
        'one rounding; with intermediates="output" each sum is rounded to the '
        "output's format, as by atomic additions in memory",
    ),
    special_values="of the element and its sources alone: NaN with a NaN or both "
    "infinities, else the infinity among them; undecided where some order overflows",
)
