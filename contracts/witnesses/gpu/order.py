"""Triton kernels whose results follow the order of programs or of streams."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.relu import launch
from kfuzz.contracts.witnesses.rows import as_rows, empty, reduced_shape

# Terms of a sum that one program adds up before it meets the others.
CHUNK = 64


@triton.jit(do_not_specialize=["chunks", "n"])
def atomic_sum_kernel(x_ptr, y_ptr, chunks, n, CHUNK: tl.constexpr):
    """y[i] += sum of one chunk of x[i, :], by one program per row and chunk."""
    pid = tl.program_id(0).to(tl.int64)
    row = pid // chunks
    offs = pid % chunks * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(x_ptr + row * n + offs, mask=offs < n, other=0.0)
    tl.atomic_add(y_ptr + row, tl.sum(x, axis=0))


def atomic_sum(x: Tensor, dim: int) -> Tensor:
    """Return sum(x, dim) of float32, added up as programs arrive."""
    rows = as_rows(x, dim).contiguous()
    m, n = rows.shape
    y = torch.zeros(m, dtype=x.dtype, device=x.device)
    if rows.numel():
        chunks = triton.cdiv(n, CHUNK)
        atomic_sum_kernel[(m * chunks,)](rows, y, chunks, n, CHUNK=CHUNK)
    return y.reshape(reduced_shape(x, dim))


@kernel(ops.sum, dtypes="float32", determinism="none")
def triton_sum_atomic(x: Tensor, dim: int) -> Tensor:
    """Conforming: it does not promise the same bits."""
    return atomic_sum(x, dim)


@kernel(ops.sum, dtypes="float32", determinism="bitwise")
def sum_atomic_bitwise(x: Tensor, dim: int) -> Tensor:
    """Violates C-ORD-02: atomics add in any order, and equal bits are declared."""
    return atomic_sum(x, dim)


@kernel(ops.relu)
def triton_relu_side_stream(x: Tensor) -> Tensor:
    """Conforming: another stream waits for the argument, and is waited for."""
    x, y = x.contiguous(), empty(x)
    here = torch.cuda.current_stream(x.device)
    aside = torch.cuda.Stream(x.device)  # type: ignore[no-untyped-call]
    aside.wait_stream(here)
    with torch.cuda.stream(aside):
        launch(x, y)
    here.wait_stream(aside)
    x.record_stream(aside)
    y.record_stream(aside)
    return y


@kernel(ops.relu)
def relu_on_default_stream(x: Tensor) -> Tensor:
    """Violates C-ORD-03: launches on the default stream, whatever the current one."""
    x, y = x.contiguous(), empty(x)
    with torch.cuda.stream(torch.cuda.default_stream(x.device)):
        return launch(x, y)
