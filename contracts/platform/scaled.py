"""Torch's product of 8-bit matrices, to be probed: `kfuzz probe torch._scaled_mm`.

It is no operator of the suite: its scales are 1, and what is asked of it is how matrix
units add 8-bit products.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kfuzz import strategies as ks
from kfuzz.contracts.binding import kernel
from kfuzz.contracts.language import Structure, Tolerance
from kfuzz.contracts.operator import Operator

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem

DATA = "float8_e4m3fn"


def reference(a: Any, b: Any, *, dtype: str) -> Any:
    """torch.matmul(a, b), before it is stored as dtype."""
    return torch.matmul(a, b)


def accept(problem: "Problem") -> "dict[str, Acceptance]":
    """Return a b +- R (|a| |b|), R that of 8-bit operands in the accumulator."""
    from dataclasses import replace

    from kfuzz.numerics.formats import FORMATS
    from kfuzz.numerics.models.dots import dots

    stored = problem.format_of("dtype")
    posed = replace(problem, format=FORMATS[DATA], output=stored)
    made = dots(posed, posed.tensors["a"], posed.tensors["b"])
    return {"y": made.accepted(posed)}


scaled_matmul = Operator(
    "scaled_matmul",
    inputs={
        "a": ks.tensors("M K", dtype=DATA),
        "b": ks.tensors("K N", dtype=DATA),
        "dtype": ks.dtype("float32", ("bfloat16",)),
    },
    oracle=reference,
    error_model=accept,
    reduced="K",
    batch="M",
    # What cuBLAS takes: rows of 16 bytes.
    shape_class="K % 16 == 0 and N % 16 == 0 and M >= 1 and K >= 16 and N >= 16",
    tolerance=Tolerance(
        Structure.INTERVAL,
        "RNE(ab - E) <= y <= RNE(ab + E), E = R |a||b|",
        "matrix units that keep 14 bits: see kfuzz.numerics.accumulation",
    ),
)


def _scaled(a: Tensor, b: Tensor, dtype: torch.dtype, *, fast: bool) -> Tensor:
    one = torch.ones((), device=a.device)
    # The second operand lies column by column, as cuBLAS takes it.
    right = b.t().contiguous().t()
    return torch._scaled_mm(
        a, right, scale_a=one, scale_b=one, out_dtype=dtype, use_fast_accum=fast
    )


@kernel(
    scaled_matmul,
    name="torch_scaled_mm",
    dtypes=("float32", "bfloat16"),
    accumulator="any_tensor_core",
    layouts="contiguous",
)
def torch_scaled_mm(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Multiply as by default: parts of a sum are added in float32."""
    return _scaled(a, b, dtype, fast=False)


@kernel(
    scaled_matmul,
    name="torch_scaled_mm_fast",
    dtypes=("float32", "bfloat16"),
    accumulator="any_tensor_core",
    layouts="contiguous",
)
def torch_scaled_mm_fast(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Multiply with use_fast_accum: sums stay in the matrix units."""
    return _scaled(a, b, dtype, fast=True)
