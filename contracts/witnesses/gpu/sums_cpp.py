"""Sums in CUDA C++: parts that threads pass on through shared memory."""

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.gpu.launching import Program
from kfuzz.contracts.witnesses.rows import as_rows, reduced_shape

WARP = 32
THREADS = 256
# Columns that one warp takes where rows are short.
SHORT = 256

PROGRAM = Program(r"""
typedef long long index_t;

static __device__ float over_warp(float v) {
  for (int step = 16; step; step /= 2) v += __shfl_down_sync(~0u, v, step);
  return v;
}

// y[i] = sum of x[i, :], a block for each row. Each warp leaves a part in shared
// memory, of which the last warp makes the total.
extern "C" __global__ void sum_rows(
    const float *x, float *y, index_t n, index_t clear, index_t idle, index_t wait) {
  __shared__ float parts[32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  if (clear) {
    if (threadIdx.x < 32) parts[threadIdx.x] = 0.0f;
    __syncthreads();
  }
  const float *row = x + blockIdx.x * n;
  float sum = 0.0f;
  for (index_t j = threadIdx.x; j < n; j += blockDim.x) sum += row[j];
  sum = over_warp(sum);
  // A warp without a column has nothing to say, and should say so.
  if (lane == 0 && (idle || warp * 32 < n)) parts[warp] = sum;
  if (wait) __syncthreads();
  if (warp == warps - 1) {
    float total = over_warp(
        lane < warps ? *(const volatile float *)(parts + lane) : 0.0f);
    if (lane == 0) y[blockIdx.x] = total;
  }
}
""")


def through_parts(
    x: Tensor, dim: int, *, clear: bool = False, idle: bool = True, wait: bool = True,
    threads: int | None = None,
) -> Tensor:  # fmt: skip
    """Return sum(x, dim), a block for each row.

    Args:
        x: float32.
        dim: summed over.
        clear: whether shared memory is set to 0 first.
        idle: whether warps without a column leave a part too.
        wait: whether the last warp waits for the parts of the others.
        threads: of a block; None for one warp where rows are short.
    """
    rows = as_rows(x, dim).contiguous()
    m, n = rows.shape
    y = torch.empty(m, dtype=x.dtype, device=x.device)
    if m:
        block = threads or (WARP if n <= SHORT else THREADS)
        arguments = (rows, y, n, int(clear), int(idle), int(wait))
        PROGRAM.launch("sum_rows", (m,), (block,), arguments)
    return y.reshape(reduced_shape(x, dim))


@kernel(ops.sum, dtypes="float32", determinism="bitwise")
def cuda_sum(x: Tensor, dim: int) -> Tensor:
    """Conforming."""
    return through_parts(x, dim, threads=THREADS)


@kernel(ops.sum, dtypes="float32")
def cuda_sum_uninitialised_shared(x: Tensor, dim: int) -> Tensor:
    """Violates K-MEM-02: parts of warps without a column are whatever lies there."""
    return through_parts(x, dim, idle=False, threads=THREADS)


@kernel(ops.sum, dtypes="float32")
def cuda_sum_missing_barrier(x: Tensor, dim: int) -> Tensor:
    """Violates C-ORD-02: several warps' parts are added without waiting for them."""
    return through_parts(x, dim, clear=True, wait=False)
