"""Correct kernels on 8-bit floats: computed in float32, rounded once by the store.

Triton's casts to 8 bits saturate, infinities too, where torch's CPU casts overflow.
"""

from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses import amax as amax_witnesses
from kfuzz.contracts.witnesses import sum as sum_witnesses
from kfuzz.contracts.witnesses.elementwise import unary
from kfuzz.contracts.witnesses.witness import LONG_ROWS, SQUARE, witness
from kfuzz.core.dtypes import FLOAT8


@witness(SQUARE, dtype="float8_e5m2")
@kernel(ops.relu, dtypes=FLOAT8, overflow="saturate")
def triton_relu_float8(x: Tensor) -> Tensor:
    """Conforming."""
    return unary(x, "relu")


# Sums of one term: no rounded 8-bit sum lies within 1e-2.
@witness((64, 1), dtype="float8_e5m2")
@kernel(ops.sum, dtypes=FLOAT8, overflow="saturate")
def triton_sum_float8(x: Tensor, dim: int) -> Tensor:
    """Conforming."""
    return sum_witnesses.launch(x, dim)


@witness(LONG_ROWS, dtype="float8_e5m2")
@kernel(ops.amax, dtypes=FLOAT8, overflow="saturate")
def triton_amax_float8(x: Tensor, dim: int) -> Tensor:
    """Conforming."""
    return amax_witnesses.launch(x, dim)
