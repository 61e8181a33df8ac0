"""transpose(x): the last two axes exchanged, in other memory."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import EVERY_DTYPE, MOVES, Operator, Structure
from kfuzz.contracts.prose import bounded


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
    **bounded("transpose", Structure.EXACT),
)
