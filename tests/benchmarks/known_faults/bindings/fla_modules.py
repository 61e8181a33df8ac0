"""Modules of flash-linear-attention that work on single tokens or rows."""

from dataclasses import replace
from typing import Any

import torch
from torch.nn import functional

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops
from tests.benchmarks.known_faults.bindings.released import call, first

_ACTIVATIONS = ("modules.activations.ops", "modules.activations")
_GATED = ("modules.norm.fused_norm_gate", "modules.fused_norm_gate")
_PENALTY = 1e-4
_ROWS: Any = {"layouts": "inner_contiguous", "offsets": "int32"}
ROWS = "N >= 1 and N <= 4096"

bias_gelu = kfuzz.Operator(
    "bias_gelu",
    inputs={"x": ks.tensors("N D"), "bias": ks.tensors("D", role="bias")},
    oracle=lambda x, bias: functional.gelu(x + bias, approximate="tanh"),
    shape_class="N >= 1 and D >= 1",
)
relu_squared = kfuzz.Operator(
    "relu_squared",
    inputs={"x": ks.tensors("*")},
    oracle=lambda x: torch.relu(x) * torch.relu(x),
)


def _norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    scale = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)
    return centred * scale * weight + bias


def _gated_norm(
    x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    return _norm(x, weight, bias) * gate * torch.sigmoid(gate)


def _gated_norm_linear(
    x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, linear: torch.Tensor
) -> torch.Tensor:
    return _gated_norm(x, gate, weight, torch.zeros_like(weight)) @ linear.T


gated_norm_linear = kfuzz.Operator(
    "gated_norm_linear",
    inputs={
        "x": ks.tensors("B N"),
        "gate": ks.tensors("B N"),
        "weight": ks.tensors("N", role="weight"),
        "linear": ks.tensors("M N", role="weight"),
    },
    oracle=_gated_norm_linear,
    shape_class="B >= 1 and M >= 1 and N >= 1 and N <= 256",
)


def _penalty_gradient(logits: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    top, index = logits.max(-1, keepdim=True)
    rows = logits.shape[0] * logits.shape[1]
    return torch.zeros_like(logits).scatter(-1, index, top * (_PENALTY / rows) * grad)


penalty_gradient = kfuzz.Operator(
    "penalty_gradient",  # what the penalty adds to the gradient of a scalar loss
    inputs={"logits": ks.tensors("B T V"), "grad": ks.tensors("O")},
    oracle=_penalty_gradient,
    shape_class="O == 1 and B >= 1 and T >= 1 and V == 1",  # V == 1: no ties
)


def _clipped_loss(
    logps: torch.Tensor, ref: torch.Tensor, old: torch.Tensor, rewards: torch.Tensor
) -> torch.Tensor:
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-8)
    ratio = torch.exp(logps - old)
    kl = torch.exp(ref - logps) - (ref - logps) - 1
    advantages = advantages.unsqueeze(1)
    reward = torch.minimum(advantages * ratio, advantages * ratio.clamp(0.8, 1.2))
    return -(reward - 0.2 * kl).mean()


clipped_loss = kfuzz.Operator(
    "clipped_loss",  # of GRPO with the log-probabilities of an older policy
    inputs={
        "logps": ks.tensors("B T"),
        "ref": ks.tensors("B T"),
        "old": ks.tensors("B T"),
        "rewards": ks.tensors("B"),
    },
    oracle=_clipped_loss,
    shape_class="B >= 2 and T >= 1",
)

# Kept apart, for fixed releases up to 0.5.2 have them too: vectors with a step, windows
# that overlap, a last dimension but one of a single element with a stride of its own,
# which `.contiguous()` leaves as it is, and row times stride in int32.
kfuzz.kernel(replace(ops.silu, ranks=(2,)), **_ROWS, name="swish")(
    lambda x: first("swish", *_ACTIVATIONS)(x)
)
kfuzz.kernel(replace(ops.swiglu, ranks=(2,)), **_ROWS, name="swiglu")(
    lambda gate, up: first("swiglu", *_ACTIVATIONS)(gate, up)
)
kfuzz.kernel(bias_gelu, dtypes=("float32",), name="bias_gelu", gradients=("x", "bias"))(
    lambda x, bias: first("bias_gelu_impl", *_ACTIVATIONS)(x, bias)
)
kfuzz.kernel(relu_squared, name="relu_squared")(
    lambda x: first("rwkv_relu_and_square_fwd", "ops.rwkv7.channel_mixing")(x, False)
)
kfuzz.kernel(penalty_gradient, dtypes=("float32",), name="l2_penalty")(
    lambda logits, grad: _gradient_of_penalty(logits, grad)
)
kfuzz.kernel(clipped_loss, dtypes=("float32",), name="grpo_with_old_logps")(
    lambda logps, ref, old, rewards: first(
        "grpo_loss_with_old_logps", "modules.grpo.ops", "modules.grpo"
    )(logps, ref, old, torch.ones_like(logps) > 0, logps.shape[1], rewards)
)


@kfuzz.kernel(
    gated_norm_linear,
    intermediates="output",
    name="gated_norm_linear",
    gradients=("linear",),
)
def _gated_linear(
    x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, linear: torch.Tensor
) -> torch.Tensor:
    result: torch.Tensor = call(
        first("layer_norm_swish_gate_linear", *_GATED),
        x=x,
        g=gate,
        norm_weight=weight,
        norm_bias=None,
        linear_weight=linear,
        linear_bias=None,
        eps=1e-5,
    )
    return result


def _gradient_of_penalty(logits: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        given = logits.detach().requires_grad_()
        loss = torch.zeros_like(grad[0], requires_grad=True)
        wrapped = first("l2_warp", "modules.l2warp")(loss, given, _PENALTY)
        (gradient,) = torch.autograd.grad(wrapped, given, grad[0])
    return gradient
