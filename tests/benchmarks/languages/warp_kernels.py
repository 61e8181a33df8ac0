"""Kernels in NVIDIA Warp, on the CPU or a GPU."""

import warp as wp

import kfuzz
from kfuzz.contracts import operators as ops

wp.config.quiet = True


@wp.kernel
def scaled_kernel(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = wp.where(x[i] <= 0.0, 0.0, x[i])


@wp.kernel
def unwritten_kernel(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    if x[i] > 0.0:
        y[i] = x[i]


def launch(kernel, x, y):
    wp.launch(kernel, x.size, [x.flatten()], [y.flatten()], device=x.device)
    wp.synchronize_device(x.device)


claims = {"out": ("y",), "layouts": "contiguous", "dtypes": "float32"}


@kfuzz.kernel(ops.relu, **claims)
@kfuzz.arrays(wp.from_dlpack)
def correct(x, y):
    launch(scaled_kernel, x, y)


@kfuzz.kernel(ops.relu, **claims)
@kfuzz.arrays(wp.from_dlpack)
def faulty(x, y):
    launch(unwritten_kernel, x, y)
