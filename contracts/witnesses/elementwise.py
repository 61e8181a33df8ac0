"""Elementwise functions in Triton: a program takes a block of contiguous memory."""

import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.activations import activated
from kfuzz.contracts.witnesses.rows import empty, over_elements
from kfuzz.contracts.witnesses.witness import SQUARE, witness


@triton.jit(do_not_specialize=["numel"])
def unary_kernel(
    x_ptr, y_ptr, numel, first, second, NAME: tl.constexpr, BLOCK: tl.constexpr
):
    """Write activated(x) to y, computed in float32."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < numel, other=0.0).to(tl.float32)
    y = activated(x, first, second, NAME)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=offs < numel)


@triton.jit(do_not_specialize=["numel"])
def binary_kernel(
    a_ptr, b_ptr, y_ptr, numel, SUM: tl.constexpr, GATE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write a + b, or activated(a) b, to y, computed in float32."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < numel
    a = tl.load(a_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    y = a + b if SUM else activated(a, 0.0, 0.0, GATE) * b
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


def unary(x: Tensor, name: str, first: float = 0.0, second: float = 0.0) -> Tensor:
    """Return an activation of x, by name, in new contiguous memory."""
    tensors = x.contiguous(), empty(x)
    return over_elements(unary_kernel, tensors, float(first), float(second), NAME=name)


def binary(a: Tensor, b: Tensor, *, gate: str = "none", add: bool = False) -> Tensor:
    """Return a + b, or activation(a) b, in new contiguous memory."""
    tensors = a.contiguous(), b.contiguous(), empty(a)
    return over_elements(binary_kernel, tensors, SUM=add, GATE=gate)


@witness(SQUARE, SQUARE)
@kernel(ops.add)
def triton_add(a: Tensor, b: Tensor) -> Tensor:
    """Conforming."""
    return binary(a, b, add=True)


@witness(SQUARE, SQUARE)
@kernel(ops.mul)
def triton_mul(a: Tensor, b: Tensor) -> Tensor:
    """Conforming."""
    return binary(a, b)


@witness(SQUARE, SQUARE)
@kernel(ops.swiglu)
def triton_swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """Conforming."""
    return binary(gate, up, gate="silu")


@witness(SQUARE, SQUARE)
@kernel(ops.geglu)
def triton_geglu(gate: Tensor, up: Tensor) -> Tensor:
    """Conforming."""
    return binary(gate, up, gate="gelu")


@witness(SQUARE)
@kernel(ops.clamp)
def triton_clamp(x: Tensor, min: float, max: float) -> Tensor:
    """Conforming."""
    return unary(x, "clamp", min, max)


@witness(SQUARE)
@kernel(ops.leaky_relu)
def triton_leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Conforming."""
    return unary(x, "leaky_relu", negative_slope)


@witness(SQUARE)
@kernel(ops.elu)
def triton_elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """Conforming."""
    return unary(x, "elu", alpha)


@witness(SQUARE)
@kernel(ops.sigmoid)
def triton_sigmoid(x: Tensor) -> Tensor:
    """Conforming."""
    return unary(x, "sigmoid")


# Triton has no tanh of its own: 2 sigmoid(2x) - 1 cancels near 0.
@witness(SQUARE)
@kernel(ops.tanh, algorithm="exp_form")
def triton_tanh(x: Tensor) -> Tensor:
    """Conforming."""
    return unary(x, "tanh")


@witness(SQUARE)
@kernel(ops.exp)
def triton_exp(x: Tensor) -> Tensor:
    """Conforming."""
    return unary(x, "exp")


@witness(SQUARE)
@kernel(ops.log)
def triton_log(x: Tensor) -> Tensor:
    """Conforming."""
    return unary(x, "log")


@witness(SQUARE)
@kernel(ops.softplus)
def triton_softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Conforming."""
    return unary(x, "softplus", beta, threshold)


@witness(SQUARE)
@kernel(ops.gelu)
def triton_gelu(x: Tensor) -> Tensor:
    """Conforming."""
    return unary(x, "gelu")


@witness(SQUARE, breaks="C-PRC-01")
@kernel(ops.gelu)
def gelu_by_tanh(x: Tensor) -> Tensor:
    """Violates C-PRC-01: the approximation, up to 4.7e-4 away, is not declared."""
    return unary(x, "gelu_tanh")


@witness(SQUARE)
@kernel(ops.gelu_tanh)
def triton_gelu_tanh(x: Tensor) -> Tensor:
    """Conforming."""
    return unary(x, "gelu_tanh")


@witness(SQUARE)
@kernel(ops.silu)
def triton_silu(x: Tensor) -> Tensor:
    """Conforming."""
    return unary(x, "silu")
