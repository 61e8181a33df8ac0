"""Kernels of Liger-Kernel 0.8.5 as released, each bound in a line.

Where its code says so, a claim stands beside: losses are added up in the data's format,
`llama` casting rounds before the weight, swiglu and geglu before the product, rope and
the powers of poly_norm are computed in the data's format, rows have at most 65,536
elements, gelu is the approximation by tanh.
"""

import torch
import torch.nn.functional as F
from liger_kernel.ops.experimental.embedding import LigerEmbeddingFunction
from liger_kernel.ops.llama4_rope import LigerLlama4RopeFunction
from liger_kernel.transformers import functional as liger

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops
from kfuzz.contracts.gradients.rules import differentiable

PACKAGE = "liger-kernel"
VERSION = "0.8.5"
NEEDS = ()

relu_squared = kfuzz.Operator(
    "relu_squared",
    inputs={"x": ks.tensors("*")},
    oracle=lambda x: torch.relu(x) * torch.relu(x),
)
dyt = kfuzz.Operator(
    "dyt",  # a normalisation without statistics
    inputs={
        "x": ks.tensors("* N"),
        "alpha": ks.tensors("O", role="weight"),
        "gamma": ks.tensors("N", role="weight"),
        "beta": ks.tensors("N", role="bias"),
    },
    oracle=lambda x, alpha, gamma, beta: torch.tanh(alpha * x) * gamma + beta,
    shape_class="O == 1",
)

ROWS = "N <= 65536"


def _divergence(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """KL(q, p) of rows of logarithms, summed."""
    return (q.exp() * (q - p)).sum()


def _jensen_shannon(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    p, q = x.exp(), target.exp()
    mixed = ((p + q) / 2).log()
    return (_divergence(mixed, x) + _divergence(mixed, target)) / 2 / len(x)


def _tvd(
    x: torch.Tensor, target: torch.Tensor, labels: torch.Tensor, ignore_index: int
) -> torch.Tensor:
    counted = (labels != ignore_index).to(x.dtype)
    far = ((x - target).abs() * counted[:, None]).sum()
    return far / 2 / counted.sum().clamp(1)


def _sparsemax(x: torch.Tensor) -> torch.Tensor:
    ordered = x.sort(-1, descending=True).values
    sums = ordered.cumsum(-1) - 1
    places = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    support = (ordered * places > sums).sum(-1, keepdim=True)
    return torch.relu(x - sums.gather(-1, support - 1) / support)


def _norm(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def _poly_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    powers = zip(w, (x * x * x, x * x, x), strict=True)
    return sum((each * _norm(power) for each, power in powers), b)


def _multi_token(scores: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
    weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), -1)
    return F.conv2d(weights, weight, padding=1).masked_fill(hidden, 0.0)


def _neighbours(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    place = torch.arange(q.shape[2])
    far = (place[:, None] - place).abs() > 1
    return torch.softmax(scores.masked_fill(far, float("-inf")), -1) @ v


def _turned(x: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    """x of B S H D, by angles of B, S and half of D; neighbours make a pair."""
    left, right = x[..., 0::2], x[..., 1::2]
    cos, sin = angle.cos()[..., None, :], angle.sin()[..., None, :]
    pair = (left * cos - right * sin, left * sin + right * cos)
    return torch.stack(pair, -1).flatten(-2)


# The losses are their formulas of any two arguments, distributions or not.
rows = {"x": ks.tensors("M N"), "target": ks.tensors("M N")}
kl_div = kfuzz.Operator(
    "kl_div", inputs=rows, oracle=lambda x, target: _divergence(x, target) / len(x)
)
jsd = kfuzz.Operator("jsd", inputs=rows, oracle=_jensen_shannon)
tvd = kfuzz.Operator(
    "tvd",
    inputs={
        **rows, "labels": ks.indices("M", below="N", ignored="ignore_index"),
        "ignore_index": ks.scalar(-100),
    },
    oracle=_tvd,
    shape_class="N >= 1",
)  # fmt: skip
sparsemax = kfuzz.Operator(
    "sparsemax", inputs={"x": ks.tensors("* N")}, oracle=_sparsemax
)
poly_norm = kfuzz.Operator(
    "poly_norm",
    inputs={
        "x": ks.tensors("* N"),
        "w": ks.tensors("K", role="weight"),
        "b": ks.tensors("O", role="bias"),
    },
    oracle=_poly_norm,
    shape_class="K == 3 and O == 1",
)
modulated = kfuzz.Operator(
    "modulated_rms_norm",
    inputs={
        "x": ks.tensors("B T N"),
        "w": ks.tensors("N", role="weight"),
        "scale": ks.tensors("B N"),
        "shift": ks.tensors("B N"),
    },
    oracle=lambda x, w, scale, shift: (
        _norm(x) * w * (1 + scale[:, None]) + shift[:, None]
    ),
)
linear_cross_entropy = kfuzz.Operator(
    "linear_cross_entropy",
    inputs={
        "x": ks.tensors("M K"),
        "weight": ks.tensors("V K", role="weight"),
        "target": ks.indices("M", below="V"),
    },
    oracle=lambda x, weight, target: F.cross_entropy(x @ weight.T, target),
    shape_class="M >= 1 and V >= 1",
    gradient=differentiable("x weight", ""),
)
multi_token = kfuzz.Operator(
    "multi_token_attention",
    inputs={"scores": ks.tensors("B C L M"), "weight": ks.tensors("O C J I")},
    oracle=_multi_token,
    shape_class="L == M and J == 3 and I == 3 and L >= 1 and C >= 1 and O >= 1",
)
neighbourhood = kfuzz.Operator(
    "neighbourhood_attention",
    inputs={name: ks.tensors("B H S D") for name in "qkv"},
    oracle=_neighbours,
    shape_class="S >= 1 and D >= 1",
)
llama4_rope = kfuzz.Operator(
    "llama4_rope",
    inputs={"x": ks.tensors("B S H D"), "angle": ks.tensors("B S P")},
    oracle=_turned,
    shape_class="D == 16 and P == 8",
)

kfuzz.kernel(ops.cross_entropy, intermediates="output")(liger.liger_cross_entropy)
kfuzz.kernel(
    ops.cross_entropy, intermediates="output", gradients=True,
    name="liger_cross_entropy_of_copy",
)(
    lambda logits, target, ignore_index, label_smoothing, reduction: (
        liger.liger_cross_entropy(  # whose gradient is stored over the logits
            logits.clone(), target, ignore_index=ignore_index, reduction=reduction,
            label_smoothing=label_smoothing,
        )
    )
)  # fmt: skip
kfuzz.kernel(ops.rms_norm, intermediates="output", shape_class=ROWS)(
    liger.liger_rms_norm
)
kfuzz.kernel(ops.add_rms_norm, intermediates="output", shape_class=ROWS)(
    liger.liger_fused_add_rms_norm
)
kfuzz.kernel(ops.layer_norm, shape_class=ROWS)(liger.liger_layer_norm)
kfuzz.kernel(ops.group_norm, name="liger_group_norm")(
    lambda x, weight, bias, num_groups=1, eps=1e-5: liger.liger_group_norm(
        x, weight, bias, x.shape[1], num_groups, eps
    )
)
kfuzz.kernel(ops.softmax, dims={-1}, shape_class=ROWS)(liger.liger_softmax)
kfuzz.kernel(ops.swiglu, intermediates="output", shape_class=ROWS)(liger.liger_swiglu)
kfuzz.kernel(
    ops.geglu, algorithm="tanh_form", intermediates="output", shape_class=ROWS
)(liger.liger_geglu)
kfuzz.kernel(relu_squared, shape_class=ROWS)(liger.liger_relu_squared)
kfuzz.kernel(dyt)(liger.liger_dyt)
kfuzz.kernel(
    ops.rope.fixed(interleaved=False, repeats=2),
    intermediates="output",
    gradients=["x"],
    name="liger_rope",
)(
    lambda x, cos, sin: liger.liger_rope(
        x.clone().transpose(1, 2),  # which is overwritten
        x.clone().transpose(1, 2),
        cos,
        sin,
        rotary_dim=x.shape[-1],
    )[0].transpose(1, 2)
)
kfuzz.kernel(
    ops.embedding, out_of_bounds="undefined", gradients=True, name="liger_embedding"
)(lambda weight, indices: LigerEmbeddingFunction.apply(weight, indices))
kfuzz.kernel(kl_div, dtypes={"float32"}, layouts="contiguous", name="liger_kl_div")(
    lambda x, target: liger.liger_kl_div(
        x, target, reduction="batchmean", log_target=True
    )
)
kfuzz.kernel(jsd, dtypes={"float32"}, layouts="contiguous", name="liger_jsd")(
    lambda x, target: liger.liger_jsd(x, target)
)
kfuzz.kernel(
    tvd, dtypes={"float32"}, layouts="contiguous", out_of_bounds="undefined",
    name="liger_tvd",
)(
    lambda x, target, labels, ignore_index: liger.liger_tvd(
        x, target, labels, "batchmean", ignore_index
    )
)  # fmt: skip
kfuzz.kernel(sparsemax, shape_class=ROWS, name="liger_sparsemax")(
    lambda x: liger.liger_sparsemax(x)
)
kfuzz.kernel(poly_norm, intermediates="output", name="liger_poly_norm")(
    lambda x, w, b: liger.liger_poly_norm(x, w, b, in_place=False)
)
kfuzz.kernel(modulated, intermediates="output", name="liger_modulated_rms_norm")(
    lambda x, w, scale, shift: liger.liger_modulated_rms_norm(x, w, scale, shift)
)
kfuzz.kernel(
    linear_cross_entropy, out_of_bounds="undefined", intermediates="output",
    gradients=True,
    name="liger_linear_cross_entropy",
)(
    lambda x, weight, target: liger.liger_fused_linear_cross_entropy(
        x, weight, target
    ).to(x.dtype)
)  # fmt: skip
kfuzz.kernel(multi_token, dtypes={"float32"}, name="liger_multi_token_attention")(
    lambda scores, weight: liger.liger_multi_token_attention(scores, weight, padding=1)
)
kfuzz.kernel(neighbourhood, name="liger_neighbourhood_attention")(
    lambda q, k, v: liger.liger_fused_neighborhood_attention(q, k, v, kernel_size=3)
)
kfuzz.kernel(llama4_rope, dtypes={"float32"}, name="liger_llama4_rope")(
    lambda x, angle: LigerLlama4RopeFunction.apply(
        x.clone(), x.clone(), torch.polar(torch.ones_like(angle), angle), None
    )[0]
)
kfuzz.kernel(
    ops.rope.fixed(interleaved=False, repeats=2),
    intermediates="output",
    name="liger_mrope",
)(
    lambda x, cos, sin: liger.liger_qwen2vl_mrope(
        x.clone().transpose(1, 2),
        x.clone().transpose(1, 2),
        cos.tile(3, x.shape[0], 1, 2),
        sin.tile(3, x.shape[0], 1, 2),
        [x.shape[-1] // 2, 0, 0],
    )[0].transpose(1, 2)
)
