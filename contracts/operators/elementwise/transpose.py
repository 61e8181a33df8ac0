"""transpose(x): the last two axes exchanged, in other memory."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import EVERY_DTYPE, MOVES, Operator, Structure, Tolerance


def reference(x: Any) -> Any:
    """x.transpose(-1, -2), of any strides."""
    return x.transpose(-1, -2)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the exact acceptance, signs of zeros included."""
    return nm.moved(problem, reference(problem.tensors["x"]).contiguous())


transpose = Operator(
    "transpose",
    inputs={"x": ks.tensors("* M N")},
    oracle=reference,
    homogeneous={"x": 1},
    error_model=accept,
    defaults=MOVES,
    dtypes=EVERY_DTYPE,
    tolerance=Tolerance(
        Structure.EXACT,
        "y[..., j, i] == x[..., i, j], and -0 stays -0",
        "a transposition only moves bits",
    ),
    special_values="NaN stays NaN (of any payload), infinities and both zeros stay",
)
