"""Kernels in CuTe DSL, which need a GPU."""

import cutlass.cute as cute
from cutlass.cute.runtime import from_dlpack

import kfuzz
from kfuzz.contracts import operators as ops

BLOCK = 128


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor, last: cute.Int32):
    i = cute.arch.block_idx()[0] * BLOCK + cute.arch.thread_idx()[0]
    if i < last:
        y[i] = x[i]
        if x[i] <= 0:
            y[i] = x.element_type(0)


@cute.jit
def relu(x: cute.Tensor, y: cute.Tensor, last: cute.Int32):
    blocks = cute.ceil_div(cute.size(x), BLOCK)
    relu_kernel(x, y, last).launch(grid=(blocks, 1, 1), block=(BLOCK, 1, 1))


compiled = {}


def launch(x, y, last):
    if not x.numel():
        return
    given = [from_dlpack(t.view(-1)).mark_layout_dynamic() for t in (x, y)]
    if x.dtype not in compiled:
        compiled[x.dtype] = cute.compile(relu, *given, last)
    compiled[x.dtype](*given, last)


claims = {"out": ("y",), "layouts": "contiguous"}


@kfuzz.kernel(ops.relu, **claims)
def correct(x, y):
    launch(x, y, x.numel())


@kfuzz.kernel(ops.relu, **claims)
def faulty(x, y):
    launch(x, y, x.numel() // BLOCK * BLOCK)
