"""Kernels in CuPy, which need a GPU."""

import cupy

import kfuzz
from kfuzz.contracts import operators as ops

relu = cupy.ElementwiseKernel("T x", "T y", "y = x <= T(0) ? T(0) : x", "relu")
relu_nan = cupy.ElementwiseKernel("T x", "T y", "y = x > T(0) ? x : T(0)", "relu_nan")
claims = {"out": ("y",), "dtypes": {"float32", "float16"}}


@kfuzz.kernel(ops.relu, **claims)
@kfuzz.arrays(cupy.from_dlpack)
def correct(x, y):
    relu(x, y)


@kfuzz.kernel(ops.relu, **claims)
@kfuzz.arrays(cupy.from_dlpack)
def faulty(x, y):
    relu_nan(x, y)
