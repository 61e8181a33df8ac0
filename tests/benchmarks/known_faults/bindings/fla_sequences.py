"""Kernels of flash-linear-attention along a sequence: shifts, convolutions, sums."""

from typing import Any

import torch
from torch.nn import functional

import kfuzz
from kfuzz import strategies as ks
from tests.benchmarks.known_faults.bindings.released import call, first

_CONVOLUTION = (
    "modules.causal_conv1d.ops",
    "modules.conv.causal_conv1d",
    "modules.convolution",
)
_ROTARY = ("modules.rotary.ops", "modules.rotary")
_CUMSUM = "ops.utils.cumsum"
_CHUNK = 16


def _shifted(x: torch.Tensor) -> torch.Tensor:
    return functional.pad(x, (0, 0, 1, 0))[:, :-1] - x


def _convolved(
    x: torch.Tensor, weight: torch.Tensor, state: torch.Tensor
) -> torch.Tensor:
    width = weight.shape[1]
    longer = torch.cat([state.transpose(1, 2), x], 1)
    steps = x.shape[1]
    parts = [
        longer[:, i + 1 : i + 1 + steps] * weight[:, i].unsqueeze(0).unsqueeze(0)
        for i in range(width)
    ]
    return torch.stack(parts).sum(0)


def _final_state(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    longer = torch.cat([state.transpose(1, 2), x], 1)
    return longer[:, longer.shape[1] - state.shape[2] :].transpose(1, 2)


def _turned(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, padding: torch.Tensor
) -> torch.Tensor:
    steps = torch.arange(x.shape[1], device=x.device)
    places = steps.unsqueeze(0) - padding.long().unsqueeze(1)
    inside = ((places >= 0) & (places < cos.shape[0])).unsqueeze(-1).unsqueeze(-1)
    at = places.clamp(0, cos.shape[0] - 1)
    c, s = cos[at].unsqueeze(2), sin[at].unsqueeze(2)
    left, right = x.chunk(2, -1)
    turned = torch.cat([left * c - right * s, right * c + left * s], -1)
    return torch.where(inside, turned, torch.zeros_like(turned))


def _reversed_sums(g: torch.Tensor) -> torch.Tensor:
    parts = [part.flip(1).cumsum(1).flip(1) for part in g.split(_CHUNK, dim=1)]
    return torch.cat(parts, dim=1)


shifted = kfuzz.Operator(
    "token_shift",
    inputs={"x": ks.tensors("B T D")},
    oracle=_shifted,
    shape_class="B >= 1 and T >= 1 and D >= 1",
)
reversed_sums = kfuzz.Operator(
    "reversed_sums",
    inputs={"g": ks.tensors("B T H")},
    oracle=_reversed_sums,
    shape_class="B >= 1 and T >= 1 and H >= 1",
)
convolution = kfuzz.Operator(
    "causal_convolution",
    inputs={
        "x": ks.tensors("B T D"),
        "weight": ks.tensors("D W", role="weight"),
        "state": ks.tensors("B D W"),
    },
    oracle=_convolved,
    shape_class="W == 4 and B >= 1 and T >= 1 and D >= 1 and T <= 12 and D <= 16",
)
convolution_with_state = kfuzz.Operator(
    "causal_convolution_with_state",
    inputs={
        "x": ks.tensors("B T D"),
        "weight": ks.tensors("D W", role="weight"),
        "state": ks.tensors("B D W"),
    },
    oracle=lambda x, weight, state: (
        _convolved(x, weight, state),
        _final_state(x, state),
    ),
    outputs=("y", "final"),
    shape_class="W == 4 and B >= 1 and T >= 1 and D >= 1 and T <= 12 and D <= 16",
)
padded_rotary = kfuzz.Operator(
    "padded_rotary",  # rows before a sequence begins are 0
    inputs={
        "x": ks.tensors("B T H D"),
        "cos": ks.tensors("S R"),
        "sin": ks.tensors("S R"),
        "padding": ks.indices("B", below="T"),
    },
    oracle=_turned,
    shape_class=(
        "D % 2 == 0 and R == D // 2 and S == T and B >= 1 and T >= 1 and H >= 1 "
        "and D >= 2 and D <= 256"
    ),
)

# What a caller may pass is said: else an exception in 16 bits counts as a refusal.
kfuzz.kernel(shifted, dtypes=("float32", "float16", "bfloat16"), name="token_shift")(
    lambda x: first("token_shift", "modules.token_shift")(x)
)
kfuzz.kernel(reversed_sums, dtypes=("float32",), name="local_cumsum")(
    lambda g: call(
        first("chunk_local_cumsum", _CUMSUM),
        g=g,
        chunk_size=_CHUNK,
        reverse=True,
        head_first=False,
    )
)


def _convolve(
    x: torch.Tensor, weight: torch.Tensor, state: torch.Tensor, final: bool
) -> Any:
    return call(
        first("causal_conv1d", *_CONVOLUTION),
        x=x,
        weight=weight,
        initial_state=state,
        output_final_state=final,
    )


kfuzz.kernel(convolution, name="causal_conv1d", gradients=("x", "weight", "state"))(
    lambda x, weight, state: _convolve(x, weight, state, final=False)[0]
)
# From W tokens on the first slot of the final state is token T - W, whose gradient
# leaves it out up to 0.6.0 too.
kfuzz.kernel(
    convolution_with_state,
    shape_class="T < W",
    name="causal_conv1d_with_state",
    gradients=("x", "state"),
)(lambda x, weight, state: tuple(_convolve(x, weight, state, final=True)[:2]))


# Padding is no index of the kernel: beyond the sequence it hides every row.
@kfuzz.kernel(padded_rotary, out_of_bounds="undefined", name="rotary")
def _rotary(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, padding: torch.Tensor
) -> torch.Tensor:
    turned: torch.Tensor = first("rotary_embedding", *_ROTARY)(
        x, cos, sin, seqlen_offsets=-padding.to(torch.int32)
    )
    return turned
