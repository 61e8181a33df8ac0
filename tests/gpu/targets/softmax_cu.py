"""Softmax of rows in CUDA C++: right, and with a tail that its sum leaves out."""

from torch import Tensor

import kfuzz
from kfuzz.contracts import operators as ops

THREADS = 128
SOURCE = kfuzz.cuda_source("softmax.cu", options=("-std=c++17",))
CLAIMS = {
    "dtypes": "float32", "dims": {-1}, "layouts": "contiguous", "out": ("y",),
}  # fmt: skip


def launched(name: str, x: Tensor, y: Tensor) -> None:
    """Launch a kernel on the rows of a tensor; without elements there is none."""
    if x.numel():
        n = x.shape[-1]
        kernel = SOURCE.kernel(name)
        kernel[x.numel() // n, THREADS, 4 * THREADS](x, y, n)


@kfuzz.kernel(ops.softmax, **CLAIMS)
def cuda_softmax(x: Tensor, y: Tensor) -> None:
    """Conforming."""
    launched("softmax_rows", x, y)


@kfuzz.kernel(ops.softmax, **CLAIMS)
def cuda_softmax_tail(x: Tensor, y: Tensor) -> None:
    """Violates C-CMP-03."""
    launched("softmax_rows_tail", x, y)
