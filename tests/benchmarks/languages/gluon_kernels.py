"""Kernels in Gluon, which need a GPU."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import kfuzz
from kfuzz.contracts import operators as ops


@gluon.jit
def relu_kernel(x, y, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    v = gl.load(x + i, i < n)
    gl.store(y + i, gl.where(v <= 0, 0.0, v), i < n)


@gluon.jit
def relu_tail_kernel(x, y, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    v = gl.load(x + i, i < n)
    gl.store(y + i, gl.where(v <= 0, 0.0, v), i <= n)


def launch(kernel):
    return kfuzz.launch(
        kernel,
        grid=lambda x, y: ((x.numel() + 127) // 128,),
        args=lambda x, y: (x, y, x.numel()),
        num_warps=4,
        BLOCK=128,
    )


bind = {"out": ("y",), "layouts": "contiguous"}
correct = kfuzz.kernel(ops.relu, name="correct", **bind)(launch(relu_kernel))
faulty = kfuzz.kernel(ops.relu, name="faulty", **bind)(launch(relu_tail_kernel))
