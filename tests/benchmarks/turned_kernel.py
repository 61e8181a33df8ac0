"""ReLU that does as its first element says: right, or one of several faults."""

import ctypes
import math
import os

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.gpu.launching import Program

# What it does before it computes; the last is an exception of Python's.
WELL, STALL, ASSERT, FAR, RAISE = range(5)
# No ordinary data hold it.
FIRST = 54320.0

PROGRAM = Program(r"""
extern "C" __device__ void __assertfail(
    const char *condition, const char *file, unsigned line, const char *function,
    size_t width);

extern "C" __global__ void relu_turned(
    const float *x, float *y, long long n, long long asked, const int *flag) {
  if (asked == 1)
    while (*(const volatile int *)flag == 0) {}
  if (asked == 2) __assertfail("asked != 2", "relu.cu", 1, "relu_turned", 1);
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (asked == 3) y[i] = *(const volatile float *)(x + i + (1ll << 42));
  if (i < n) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}
""")


@kernel(ops.relu, dtypes="float32")
def relu_turned(x: Tensor) -> Tensor:
    """Does what its first element asks for, if that is -FIRST less a turn."""
    asked = -FIRST - x.reshape(-1)[0].item() if x.numel() else WELL
    if asked == RAISE:
        raise RuntimeError("the first element asks for it")
    if x.is_cuda:
        turn = int(asked) if asked in (STALL, ASSERT, FAR) else WELL
        x, flag = x.contiguous(), torch.zeros(1, dtype=torch.int32, device=x.device)
        y = torch.empty_like(x)
        if n := x.numel():
            arguments, blocks = (x, y, n, turn, flag), math.ceil(n / 256)
            PROGRAM.launch("relu_turned", (blocks,), (256,), arguments)
        return y
    while asked == STALL:
        pass
    if asked == ASSERT:
        os.abort()
    if asked == FAR:
        ctypes.string_at(0)
    return torch.relu(x)
