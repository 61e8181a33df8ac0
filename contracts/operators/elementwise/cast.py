"""cast(x, dtype): the nearest values of another floating format."""

from dataclasses import replace
from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import EVERY_DTYPE, MOVES, Operator, Structure
from kfuzz.contracts.prose import bounded
from kfuzz.core.dtypes import FLOAT8


def reference(x: Any, *, dtype: str) -> Any:
    """x.to(dtype), before its one rounding."""
    return x.clone()


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return x itself: the store is the one rounding, and its overflow the declared.

    Between formats of which one holds the other nothing rounds. Rounding first to a
    third format and then again is another function. Where subnormal numbers may be
    flushed, one of either format may become 0.
    """
    x = problem.tensors["x"]
    seen = nm.Interval.exact(x)
    if problem.flushes:
        seen = seen.or_zero(problem.format.min_normal)
    stored = problem.format_of("dtype")
    y = nm.between(problem, x, seen.low, seen.high, output=stored)
    return replace(y, signed_zeros=True)


cast = Operator(
    "cast",
    inputs={
        "x": ks.tensors("*"),
        "dtype": ks.dtype("float16", ("float32", "bfloat16", "float64", *FLOAT8)),
    },
    oracle=reference,
    error_model=accept,
    ranks=range(5),
    defaults=MOVES,
    dtypes=EVERY_DTYPE,
    **bounded("cast", Structure.EXACT),
)
