"""Activation functions of float32 tiles, for kernels of their own and epilogues."""

import triton
import triton.language as tl


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)); 0 where the exponential overflows."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def gelu(x):
    """Return x Phi(x), by the error function."""
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def gelu_tanh(x):
    """The approximation x / 2 (1 + tanh t), as x sigmoid(2 t)."""
    t = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return x * sigmoid(2.0 * t)


@triton.jit
def activated(x, first, second, NAME: tl.constexpr):
    """Apply an activation by name; NaN stays NaN.

    Args:
        x: float32, any shape.
        first: its first parameter, if it has one.
        second: its second parameter, if it has one.
        NAME: as the operator's, "none", or "relu_cut", a faulty one that ends at 64.
    """
    y = x
    if NAME == "relu":
        y = tl.where(x < 0, 0.0, x)
    elif NAME == "leaky_relu":
        y = tl.where(x > 0, x, first * x)
    elif NAME == "elu":
        y = tl.where(x > 0, x, first * (tl.exp(x) - 1.0))
    elif NAME == "clamp":
        y = tl.where(x < first, first, x)
        y = tl.where(y > second, second, y)
    elif NAME == "sigmoid":
        y = sigmoid(x)
    elif NAME == "tanh":
        y = 2.0 * sigmoid(2.0 * x) - 1.0
    elif NAME == "exp":
        y = tl.exp(x)
    elif NAME == "log":
        y = tl.log(x)
    elif NAME == "softplus":
        # log(1 + exp(z)) with an exponential that cannot overflow.
        z = first * x
        soft = tl.maximum(z, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(z)))
        y = tl.where(z > second, x, soft / first)
    elif NAME == "gelu":
        y = gelu(x)
    elif NAME == "gelu_tanh":
        y = gelu_tanh(x)
    elif NAME == "silu":
        y = x / (1.0 + tl.exp(-x))
    elif NAME == "relu_cut":
        y = tl.where(x < 0, 0.0, tl.where(x > 64.0, 64.0, x))
    else:
        tl.static_assert(NAME == "none")
    return y
