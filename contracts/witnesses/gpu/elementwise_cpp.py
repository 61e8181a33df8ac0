"""ReLU in CUDA C++: what hand-written loads, stores and launches get wrong."""

import math

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.gpu.launching import Program
from kfuzz.contracts.witnesses.gpu.liveness import rare
from kfuzz.contracts.witnesses.relu import empty, unlucky

THREADS = 256
# Elements of a vector load.
LANES = 4
# What `relu_turned` does before it computes; data or the host may ask for it.
WELL, STALL, ASSERT, FAR = range(4)

PROGRAM = Program(r"""
extern "C" __device__ void __assertfail(
    const char *condition, const char *file, unsigned line, const char *function,
    size_t width);

typedef long long index_t;

static __device__ float positive(float v) { return v < 0.0f ? 0.0f : v; }

// Loads x[-before, n + after) and writes y[0, n + stored).
extern "C" __global__ void relu_between(
    const float *x, float *y, index_t n, index_t before, index_t after,
    index_t stored) {
  index_t i = (index_t)blockIdx.x * blockDim.x + threadIdx.x - before;
  float v = 0.0f;
  // Volatile: a value that nothing uses is loaded all the same.
  if (i < n + after) v = *(const volatile float *)(x + i);
  if (i >= 0 && i < n + stored) y[i] = positive(v);
}

// Loads `vectors` vectors of x, and the rest of its n elements one by one.
extern "C" __global__ void relu_vectors(
    const float *x, float *y, index_t n, index_t vectors) {
  index_t i = (index_t)blockIdx.x * blockDim.x + threadIdx.x;
  index_t whole = n / 4;
  if (i < vectors) {
    float a, b, c, d;
    // Volatile to the assembler too, which else loads only where a value is used.
    asm volatile("ld.volatile.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(a), "=f"(b), "=f"(c), "=f"(d)
                 : "l"(__cvta_generic_to_global(x + 4 * i)));
    if (i < whole) {
      y[4 * i] = positive(a);
      y[4 * i + 1] = positive(b);
      y[4 * i + 2] = positive(c);
      y[4 * i + 3] = positive(d);
    }
  }
  if (i < n - 4 * whole) y[4 * whole + i] = positive(x[4 * whole + i]);
}

// Its offsets are 32 bits wide, and wrap from 2^31 on.
extern "C" __global__ void relu_int_offsets(const float *x, float *y, index_t n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = positive(x[i]);
}

// One block for each row, in the second dimension of the grid if so told.
extern "C" __global__ void relu_rows(
    const float *x, float *y, index_t n, index_t second) {
  index_t row = (second ? blockIdx.y : blockIdx.x) * n;
  for (index_t j = threadIdx.x; j < n; j += blockDim.x)
    y[row + j] = positive(x[row + j]);
}

// Stalls, asserts or faults as `turn` says: its element, or what the host gives.
extern "C" __global__ void relu_turned(
    const float *x, float *y, index_t n, const int *turn, const int *flag) {
  int asked = *turn;
  if (asked == 1)
    while (*(const volatile int *)flag == 0) {}
  if (asked == 2) __assertfail("asked != 2", "relu.cu", 1, "relu_turned", 1);
  index_t i = (index_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (asked == 3) y[i] = *(const volatile float *)(x + i + (1ll << 42));
  if (i < n) y[i] = positive(x[i]);
}
""")


def between(x: Tensor, *, before: int = 0, after: int = 0, stored: int = 0) -> Tensor:
    """Return relu of a contiguous tensor; what is not 0 is a fault.

    Args:
        x: float32.
        before: elements loaded in front of it.
        after: elements loaded behind it.
        stored: elements written behind the result.
    """
    x, y = x.contiguous(), empty(x)
    if n := x.numel():
        blocks = math.ceil((n + before + max(after, stored)) / THREADS)
        arguments = (x, y, n, before, after, stored)
        PROGRAM.launch("relu_between", (blocks,), (THREADS,), arguments)
    return y


@kernel(ops.relu, dtypes="float32")
def cuda_relu(x: Tensor) -> Tensor:
    """Conforming."""
    return between(x)


@kernel(ops.relu, dtypes="float32")
def cuda_relu_reads_one_past(x: Tensor) -> Tensor:
    """Violates K-MEM-01: loads the element behind the last, and does not use it."""
    return between(x, after=1)


@kernel(ops.relu, dtypes="float32")
def cuda_relu_reads_one_before(x: Tensor) -> Tensor:
    """Violates K-MEM-01: with a padded block the element before the first is loaded."""
    return between(x, before=int(x.numel() % THREADS != 0))


@kernel(ops.relu, dtypes="float32")
def cuda_relu_writes_one_past(x: Tensor) -> Tensor:
    """Violates K-MEM-01: writes the element behind the result's last."""
    return between(x, stored=1)


@kernel(ops.relu, dtypes="float32")
def cuda_relu_last_block_unwritten(x: Tensor) -> Tensor:
    """Violates K-MEM-02: the number of blocks is rounded down."""
    x, y = x.contiguous(), empty(x)
    if blocks := x.numel() // THREADS:
        arguments = (x, y, x.numel(), 0, 0, 0)
        PROGRAM.launch("relu_between", (blocks,), (THREADS,), arguments)
    return y


def by_vectors(x: Tensor, *, past: int = 0) -> Tensor:
    """Return relu of a contiguous tensor, loaded in vectors and some `past` them."""
    y = empty(x)
    if n := x.numel():
        vectors = n // LANES + past
        blocks = math.ceil(max(vectors, LANES) / THREADS)
        PROGRAM.launch("relu_vectors", (blocks,), (THREADS,), (x, y, n, vectors))
    return y


def is_aligned(x: Tensor) -> bool:
    """Whether vectors of a contiguous tensor begin where vectors may."""
    return x.data_ptr() % (LANES * x.element_size()) == 0


@kernel(ops.relu, dtypes="float32")
def cuda_relu_vectors(x: Tensor) -> Tensor:
    """Conforming: loads vectors where the input is aligned to them."""
    x = x.contiguous()
    return by_vectors(x) if is_aligned(x) else between(x)


@kernel(ops.relu, dtypes="float32")
def cuda_relu_vectors_unaligned(x: Tensor) -> Tensor:
    """Violates K-LIV-01: takes every input for aligned to 16 bytes."""
    return by_vectors(x.contiguous())


@kernel(ops.relu, dtypes="float32")
def cuda_relu_reads_vector_past(x: Tensor) -> Tensor:
    """Violates K-MEM-01: loads one vector more than there is, and uses none of it."""
    x = x.contiguous()
    return by_vectors(x, past=1) if is_aligned(x) else between(x)


@kernel(ops.relu, dtypes="float32")
def cuda_relu_int_offsets(x: Tensor) -> Tensor:
    """Violates K-MEM-01: offsets wrap from 2^31 on, in front of the input."""
    x, y = x.contiguous(), empty(x)
    if n := x.numel():
        blocks = math.ceil(n / THREADS)
        PROGRAM.launch("relu_int_offsets", (blocks,), (THREADS,), (x, y, n))
    return y


def by_rows(x: Tensor, *, second: bool = False, threads: int | None = None) -> Tensor:
    """Return relu(x) by a block for each row; nobody asks whether it was launched.

    Args:
        x: float32.
        second: whether rows lie along the second dimension of the grid.
        threads: of a block; None for one for each column.
    """
    x, y = x.contiguous(), empty(x)
    if x.numel():
        n = x.shape[-1] if x.dim() else 1
        m = x.numel() // n
        grid = (1, m) if second else (m,)
        arguments = (x, y, n, int(second))
        PROGRAM.launch("relu_rows", grid, (threads or n,), arguments, checked=False)
    return y


@kernel(ops.relu, dtypes="float32", shape_class="M <= 2147483647")
def cuda_relu_rows(x: Tensor) -> Tensor:
    """Conforming: rows lie along the first dimension of the grid."""
    return by_rows(x, threads=THREADS)


@kernel(ops.relu, dtypes="float32")
def cuda_relu_thread_per_column(x: Tensor) -> Tensor:
    """Violates K-LIV-01: blocks of more than 1,024 threads are not launched."""
    return by_rows(x)


@kernel(ops.relu, dtypes="float32")
def cuda_relu_rows_in_y(x: Tensor) -> Tensor:
    """Violates K-LIV-01: more than 65,535 rows do not fit the grid."""
    return by_rows(x, second=True, threads=THREADS)


def turned(x: Tensor, turn: Tensor) -> Tensor:
    """Return relu(x) unless `turn`, an int32, asks for something else.

    Args:
        x: float32.
        turn: one element: `WELL`, `STALL`, `ASSERT` or `FAR`.
    """
    x, y = x.contiguous(), empty(x)
    if n := x.numel():
        flag = torch.zeros(1, dtype=torch.int32, device=x.device)
        arguments = (x, y, n, turn, flag)
        blocks = math.ceil(n / THREADS)
        PROGRAM.launch("relu_turned", (blocks,), (THREADS,), arguments)
    return y


def _asking(x: Tensor, turn: int) -> Tensor:
    return torch.full((1,), turn, dtype=torch.int32, device=x.device)


@kernel(ops.relu, dtypes="float32")
def cuda_relu_turned(x: Tensor) -> Tensor:
    """Conforming: nothing is asked for but the result."""
    return turned(x, _asking(x, WELL))


@kernel(ops.relu, dtypes="float32")
def cuda_relu_stalls(x: Tensor) -> Tensor:
    """Violates K-LIV-01: waits at some sizes for a flag that nobody sets."""
    return turned(x, _asking(x, STALL if unlucky(x) else WELL))


@kernel(ops.relu, dtypes="float32")
def cuda_relu_asserts(x: Tensor) -> Tensor:
    """Violates K-LIV-01: an assertion on the device fails at some sizes."""
    return turned(x, _asking(x, ASSERT if unlucky(x) else WELL))


@kernel(ops.relu, dtypes="float32")
def cuda_relu_rare_illegal_address(x: Tensor) -> Tensor:
    """Violates K-LIV-01: one size in 61 makes it load where no memory lies."""
    return turned(x, _asking(x, FAR if rare(x) else WELL))


@kernel(ops.relu, dtypes="float32")
def cuda_relu_on_default_stream(x: Tensor) -> Tensor:
    """Violates C-ORD-03: launches on the default stream, whatever the current one."""
    x = x.contiguous()
    with torch.cuda.stream(torch.cuda.default_stream(x.device)):
        return between(x)
