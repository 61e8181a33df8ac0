"""Torch's product of 8-bit matrices, to be probed.

It is no operator of the suite: its scales are 1, and what is asked of it is how matrix
units add 8-bit products.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.binding import kernel
from kfuzz.contracts.language import Structure, Tolerance
from kfuzz.contracts.operator import Operator

DATA = "float8_e4m3fn"


def reference(a: Any, b: Any, *, dtype: str) -> Any:
    """torch.matmul(a, b), before it is stored as dtype."""
    return torch.matmul(a, b)


def accept(problem: nm.Problem) -> nm.Acceptance:
    """Return a b +- R (|a| |b|), R that of 8-bit operands in the accumulator."""
    stored = problem.format_of("dtype")
    posed = replace(problem, format=nm.FORMATS[DATA], output=stored)
    made = nm.dots(posed, posed.tensors["a"], posed.tensors["b"])
    return made.accepted(posed)


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


_declared = partial(
    kernel,
    scaled_matmul,
    dtypes=("float32", "bfloat16"),
    accumulator="any_tensor_core",
    layouts="contiguous",
)


@_declared(name="torch_scaled_mm")
def torch_scaled_mm(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Multiply as by default: parts of a sum are added in float32."""
    return _scaled(a, b, dtype, fast=False)


@_declared(name="torch_scaled_mm_fast")
def torch_scaled_mm_fast(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Multiply with use_fast_accum: sums stay in the matrix units."""
    return _scaled(a, b, dtype, fast=True)
