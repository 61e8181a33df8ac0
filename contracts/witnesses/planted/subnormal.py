"""Faults of subnormal numbers: they are flushed where they are to be preserved."""

from typing import Any, Final

from torch import Tensor

from kfuzz.contracts.witnesses.classes.subnormals import flushed
from kfuzz.contracts.witnesses.planted.base import (
    EDITABLE,
    Base,
    Fault,
    packed,
    unpacked,
)
from kfuzz.contracts.witnesses.planted.calls import replaced
from kfuzz.core.verdict import output_of

_FLOATS: Final = EDITABLE[:3]
# Torch's own keep intermediate results in the output's format, in which sums and
# logarithms lose what is subnormal.
_OF_REFERENCE: Final = ("softmax", "log_softmax")
# Operators in which only results are subnormal, and mostly those of float16: its
# subnormal numbers begin at 6e-5.
_OF_HALF: Final = (
    "exp", "batch_norm", "group_norm", "layer_norm", "scatter_add", "index_add",
    *_OF_REFERENCE,
)  # fmt: skip
# Where scales are as often subnormal as in float32, and results more often.
_OF_BFLOAT: Final = ("dequantize_int8",)
# Where 16-bit data are scaled none is lost; a scale that is subnormal is.
_OF_SINGLE: Final = ("quantize_int8",)
# Results that may be subnormal, but in few of the cases that are drawn.
_SELDOM: Final = {
    "dropout": "a 0 may be an element that is dropped",
    "scaled_matmul_int8": "its data are integers, and its sums seldom subnormal",
    "var": "squares of subnormal numbers vanish, and a variance is seldom subnormal",
    "logsumexp": "its results are subnormal only where the sum of exponentials is 1",
    **dict.fromkeys(
        ("cross_entropy", "linear_cross_entropy"),
        "its losses are subnormal only where one logit dwarfs the others",
    ),
}


def _stored(x: Tensor) -> Tensor:
    """Return x with 0 for its subnormal numbers; formats of 8 bits as they are."""
    return flushed(x) if x.dtype in _FLOATS else x


def _flushes(base: Base) -> Base | str:
    operator = base.operator
    if set(operator.integers) == set(map(output_of, operator.outputs)):
        return "its results are integers"
    if operator.name in _SELDOM:
        return _SELDOM[operator.name]
    if operator.name in _OF_REFERENCE:
        base = base.by_reference()

    def flush(*tensors: Tensor, **scalars: Any) -> Any:
        returned = base.function(*map(_stored, tensors), **scalars)
        outputs, several = unpacked(returned)
        return packed([_stored(y) for y in outputs], several)

    made = replaced(base, flush).claiming(subnormals="preserve")
    if operator.name in _OF_HALF:
        return made.claiming(dtypes="float16")
    if operator.name in _OF_BFLOAT:
        return made.claiming(dtypes="bfloat16")
    return made.claiming(dtypes="float32") if operator.name in _OF_SINGLE else made


FAULTS: Final = (
    Fault(
        "flushes", "C-PRC-03",
        "takes subnormal numbers for 0 and stores none, and declares to preserve them",
        _flushes,
    ),
)  # fmt: skip
