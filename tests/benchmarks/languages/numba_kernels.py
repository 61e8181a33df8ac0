"""Kernels for Numba's CUDA simulator: NUMBA_ENABLE_CUDASIM=1."""

import numpy as np
from numba import cuda

import kfuzz
from kfuzz.contracts import operators as ops

BLOCK = 32


@cuda.jit
def relu_kernel(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = max(x[i], 0) if x[i] == x[i] else x[i]


@cuda.jit
def relu_tail_kernel(x, y):
    i = cuda.grid(1)
    if i < x.size // BLOCK * BLOCK or x.size < BLOCK:
        y[i] = max(x[i], 0) if x[i] == x[i] else x[i]


def launch(kernel, x, y):
    if x.size:
        kernel[(x.size + BLOCK - 1) // BLOCK, BLOCK](x.reshape(-1), y.reshape(-1))


@kfuzz.kernel(ops.relu, out=("y",), layouts="contiguous")
@kfuzz.arrays(np.from_dlpack)
def correct(x, y):
    launch(relu_kernel, x, y)


@kfuzz.kernel(ops.relu, out=("y",), layouts="contiguous")
@kfuzz.arrays(np.from_dlpack)
def faulty(x, y):
    launch(relu_tail_kernel, x, y)
