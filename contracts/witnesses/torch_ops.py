"""Torch's own implementations, which conform on the CPU as declared here."""

import torch
from torch import Tensor
from torch.nn import functional

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops

# Measured on torch 2.13: on the CPU, along any dimension but the last, 16-bit data
# has its exp stored in its own format before the division.
torch_softmax = kernel(ops.softmax, name="torch_softmax", intermediates="output")(
    torch.softmax
)
torch_sum = kernel(ops.sum, name="torch_sum")(torch.sum)
torch_amax = kernel(ops.amax, name="torch_amax")(torch.amax)
torch_relu = kernel(ops.relu, name="torch_relu")(torch.relu)
torch_matmul = kernel(ops.matmul, name="torch_matmul")(torch.matmul)


@kernel(ops.layer_norm)
def torch_layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> Tensor:
    """Normalise over the last dimension with `torch.nn.functional.layer_norm`."""
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


@kernel(ops.embedding)
def torch_embedding(weight: Tensor, indices: Tensor) -> Tensor:
    """Look rows up with `torch.nn.functional.embedding`."""
    return torch.nn.functional.embedding(indices, weight)


@kernel(ops.gather)
def torch_gather(x: Tensor, index: Tensor) -> Tensor:
    """Gather along the last dimension with `torch.gather`."""
    return torch.gather(x, -1, index)


# On the CPU 16-bit log-probabilities are stored, then summed over the rows, in
# their own format (aten/src/ATen/native/LossNLL.cpp: nll_loss_out_frame).
@kernel(ops.cross_entropy, intermediates="output")
def torch_cross_entropy(
    logits: Tensor,
    target: Tensor,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Take the mean loss with `torch.nn.functional.cross_entropy`."""
    return torch.nn.functional.cross_entropy(
        logits, target, ignore_index=ignore_index, label_smoothing=label_smoothing
    )


torch_mean = kernel(ops.mean, name="torch_mean")(torch.mean)
# Measured on torch 2.13: on the CPU 16-bit products are kept in the data's format.
torch_prod = kernel(ops.prod, name="torch_prod", dtypes="float32")(torch.prod)
torch_prod_float16 = kernel(
    ops.prod, name="torch_prod_float16", dtypes="float16", accumulator="float16"
)(torch.prod)
torch_prod_bfloat16 = kernel(
    ops.prod, name="torch_prod_bfloat16", dtypes="bfloat16", accumulator="bfloat16"
)(torch.prod)
torch_amin = kernel(ops.amin, name="torch_amin")(torch.amin)
torch_argmax = kernel(ops.argmax, name="torch_argmax")(torch.argmax)
torch_var = kernel(ops.var, name="torch_var")(torch.var)
# Measured there: the sum of exponentials is stored in the data's format, and so are
# logarithms and differences of log_softmax.
torch_logsumexp = kernel(ops.logsumexp, name="torch_logsumexp", intermediates="output")(
    torch.logsumexp
)
torch_cumsum = kernel(ops.cumsum, name="torch_cumsum")(torch.cumsum)
torch_log_softmax = kernel(
    ops.log_softmax, name="torch_log_softmax", intermediates="output"
)(torch.log_softmax)


# Measured there: the norm is stored in the data's format, in which an eps of 1e-12
# is 0 for float16.
@kernel(ops.l2_normalize, intermediates="output")
def torch_l2_normalize(x: Tensor, dim: int = -1, eps: float = 1e-12) -> Tensor:
    """Normalise rows with `torch.nn.functional.normalize`."""
    return torch.nn.functional.normalize(x, 2.0, dim, eps)


@kernel(ops.rms_norm)
def torch_rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Normalise over the last dimension with `torch.nn.functional.rms_norm`."""
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)


# It refuses a group of one element in a batch of one.
@kernel(ops.group_norm, shape_class="B * C * L != num_groups")
def torch_group_norm(
    x: Tensor, weight: Tensor, bias: Tensor, num_groups: int = 1, eps: float = 1e-5
) -> Tensor:
    """Normalise groups of channels with `torch.nn.functional.group_norm`."""
    return torch.nn.functional.group_norm(x, num_groups, weight, bias, eps)


# It refuses 0 channels. Measured on torch 2.13: on the CPU each step on strided 16-bit
# data is stored in the data's format.
@kernel(ops.batch_norm, shape_class="C >= 1", intermediates="output")
def torch_batch_norm(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalise by given statistics with `torch.nn.functional.batch_norm`."""
    return torch.nn.functional.batch_norm(x, mean, var, weight, bias, eps=eps)


@kernel(ops.add_rms_norm)
def torch_add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Add, then normalise the stored sum."""
    h = x + residual
    return torch.nn.functional.rms_norm(h, h.shape[-1:], weight, eps), h


torch_add = kernel(ops.add, name="torch_add")(torch.add)
torch_mul = kernel(ops.mul, name="torch_mul")(torch.mul)
torch_copy = kernel(ops.copy, name="torch_copy")(torch.clone)
torch_clamp = kernel(ops.clamp, name="torch_clamp")(torch.clamp)
torch_leaky_relu = kernel(ops.leaky_relu, name="torch_leaky_relu")(
    functional.leaky_relu
)
torch_elu = kernel(ops.elu, name="torch_elu", algorithm="expm1")(functional.elu)
torch_sigmoid = kernel(ops.sigmoid, name="torch_sigmoid")(torch.sigmoid)
torch_tanh = kernel(ops.tanh, name="torch_tanh")(torch.tanh)
torch_exp = kernel(ops.exp, name="torch_exp")(torch.exp)
torch_log = kernel(ops.log, name="torch_log")(torch.log)
torch_softplus = kernel(ops.softplus, name="torch_softplus", algorithm="log1p")(
    functional.softplus
)
# Measured on torch 2.13: on the CPU gelu goes through oneDNN, whose erf misses 4 ulp
# (by 3 % at -3.47), and whose gelu(+Inf) is NaN in float32 and bfloat16 from 8
# elements on.
torch_gelu = kernel(ops.gelu, name="torch_gelu", approx=True, nonfinite="undefined")(
    functional.gelu
)
torch_silu = kernel(ops.silu, name="torch_silu")(functional.silu)


@kernel(ops.gelu_tanh)
def torch_gelu_tanh(x: Tensor) -> Tensor:
    """Apply `torch.nn.functional.gelu` with its tanh approximation."""
    return functional.gelu(x, approximate="tanh")


# Two operators: the activation is stored in the data's format between them.
@kernel(ops.swiglu, intermediates="output")
def torch_swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """Gate by `torch.nn.functional.silu`."""
    return functional.silu(gate) * up


@kernel(ops.geglu, intermediates="output", approx=True, nonfinite="undefined")
def torch_geglu(gate: Tensor, up: Tensor) -> Tensor:
    """Gate by `torch.nn.functional.gelu`, as `torch_gelu` declares it."""
    return functional.gelu(gate) * up


@kernel(ops.transpose)
def torch_transpose(x: Tensor) -> Tensor:
    """Exchange the last two axes; torch's own transposition is a view."""
    return x.transpose(-1, -2).clone()


torch_bmm = kernel(ops.bmm, name="torch_bmm")(torch.bmm)


# Measured on torch 2.13: on the CPU strided or 1-d 16-bit data is multiplied, stored,
# and the bias added to that.
@kernel(ops.linear, intermediates="output")
def torch_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply `torch.nn.functional.linear`."""
    return functional.linear(x, weight, bias)


@kernel(ops.linear, name="torch_linear_plain")
def torch_linear_plain(x: Tensor, weight: Tensor) -> Tensor:
    """Apply `torch.nn.functional.linear` without a bias."""
    return functional.linear(x, weight)


@kernel(ops.linear_relu, intermediates="output")
def torch_linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply torch's linear, as `torch_linear` declares it, and relu."""
    return torch.relu(functional.linear(x, weight, bias))


@kernel(ops.linear_gelu, intermediates="output", approx=True, nonfinite="undefined")
def torch_linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply torch's linear and gelu, as `torch_linear` and `torch_gelu` declare."""
    return functional.gelu(functional.linear(x, weight, bias))


def _conv2d(
    x: Tensor, weight: Tensor, bias: Tensor, *, stride: int = 1, padding: int = 0,
    dilation: int = 1,
) -> Tensor:  # fmt: skip
    return functional.conv2d(x, weight, bias, stride, padding, dilation)


torch_conv2d = kernel(ops.conv2d, name="torch_conv2d", dtypes=("float32", "float16"))(
    _conv2d
)
# Measured on torch 2.13: on the CPU, with one channel, oneDNN multiplies neighbours of
# an element by a 0 that pads the weights: infinities beside it give NaN.
torch_conv2d_bfloat16 = kernel(
    ops.conv2d,
    name="torch_conv2d_bfloat16",
    dtypes="bfloat16",
    nonfinite="undefined",
)(_conv2d)


# Measured on torch 2.13: on the CPU a score that is NaN, also as Inf - Inf, is passed
# over by the maximum; a row of them is taken for a masked one, and is 0. Without any
# key, float16 results depend on what memory held before: often NaN.
@kernel(ops.attention, nonfinite="undefined", masked_row="zero", shape_class="T >= 1")
def torch_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None
) -> Tensor:
    """Apply `torch.nn.functional.scaled_dot_product_attention`."""
    return functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal, scale=scale, enable_gqa=True
    )


@kernel(ops.attention, nonfinite="undefined", masked_row="zero", shape_class="T >= 1")
def torch_attention_masked(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float | None = None
) -> Tensor:
    """Apply the same with an additive mask."""
    return functional.scaled_dot_product_attention(
        q, k, v, mask, scale=scale, enable_gqa=True
    )


# Each of its steps is stored in the data's format.
@kernel(ops.attention, algorithm="unfused", masked_row="nan")
def torch_attention_unfused(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, causal: bool = False,
    scale: float | None = None,
) -> Tensor:  # fmt: skip
    """Multiply, mask, `torch.softmax`, multiply."""
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = (q @ k.transpose(-1, -2)) * scale + mask
    if causal:
        seen = torch.ones_like(scores, dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, float("-inf"))
    return torch.softmax(scores, -1) @ v
