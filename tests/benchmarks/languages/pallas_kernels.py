"""Kernels in Pallas, in JAX's interpreter of it."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

import kfuzz
from kfuzz.contracts import operators as ops


def softmax_kernel(x, y):
    row = x[...].astype(jnp.float32)
    e = jnp.exp(row - row.max(axis=1, keepdims=True))
    y[...] = (e / e.sum(axis=1, keepdims=True)).astype(y.dtype)


def unstable_kernel(x, y):
    e = jnp.exp(x[...].astype(jnp.float32))
    y[...] = (e / e.sum(axis=1, keepdims=True)).astype(y.dtype)


@jax.jit(static_argnums=0)
def launched(kernel, x):
    block = pl.BlockSpec((1, x.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(
        kernel, jax.ShapeDtypeStruct(x.shape, x.dtype), grid=x.shape[:1],
        in_specs=[block], out_specs=block, interpret=True,
    )(x)  # fmt: skip


claims = {"ranks": {2}, "dims": {-1}, "layouts": "contiguous"}


@kfuzz.kernel(ops.softmax, **claims)
@kfuzz.arrays(jnp.from_dlpack)
def correct(x):
    return launched(softmax_kernel, x)


@kfuzz.kernel(ops.softmax, **claims)
@kfuzz.arrays(jnp.from_dlpack)
def faulty(x):
    return launched(unstable_kernel, x)
