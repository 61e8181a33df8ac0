"""Triton kernels of flash-attn 2.8.3.post2 as released.

Its `__init__` asks for compiled extensions: modules are imported below an empty one.
Rows of the norms have at most 64 KiB, heads of rotary embeddings at most 256 elements;
losses are float32 whatever the logits are.
"""

from types import SimpleNamespace
from unittest import mock

import torch
import torch.nn.functional as F

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops
from tests.hunt.bare import bare

PACKAGE = "flash-attn"
VERSION = "2.8.3.post2"
NEEDS = ("einops==0.8.1",)

bare("flash_attn")
_device = SimpleNamespace(warp_size=32, max_threads_per_block=1024)  # of any GPU
with (
    mock.patch("torch.cuda.current_device", return_value=0),
    mock.patch("torch.cuda.get_device_properties", return_value=_device),
):
    from flash_attn.ops.triton.cross_entropy import cross_entropy_loss
    from flash_attn.ops.triton.layer_norm import layer_norm_fn, rms_norm_fn
    from flash_attn.ops.triton.rotary import apply_rotary

ROWS = "N >= 2 and N <= 16384"

kfuzz.kernel(ops.layer_norm, name="flash_layer_norm", shape_class=ROWS)(
    lambda x, weight, bias=None, eps=1e-6: layer_norm_fn(x, weight, bias, eps=eps)
)
kfuzz.kernel(ops.rms_norm, name="flash_rms_norm", shape_class=ROWS)(
    lambda x, weight, eps=1e-6: rms_norm_fn(x, weight, None, eps=eps)
)
kfuzz.kernel(ops.add_rms_norm, name="flash_add_rms_norm", shape_class=ROWS)(
    lambda x, residual, weight, eps=1e-6: rms_norm_fn(
        x, weight, None, residual=residual, eps=eps, prenorm=True
    )
)


def _two(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor,
    w1: torch.Tensor,
    b1: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    normed = F.layer_norm(x, x.shape[-1:], eps=1e-5)
    return normed * w + b, normed * w1 + b1


kfuzz.kernel(
    kfuzz.Operator(
        "parallel_layer_norm",
        inputs={
            "x": ks.tensors("M N"),
            "w": ks.tensors("N", role="weight"), "b": ks.tensors("N", role="bias"),
            "w1": ks.tensors("N", role="weight"), "b1": ks.tensors("N", role="bias"),
        },
        oracle=lambda x, w, b, w1, b1: _two(x, w, b, w1, b1),
        outputs=("out", "out1"),
        shape_class=ROWS,
    ),
    name="flash_parallel_layer_norm",
)(
    lambda x, w, b, w1, b1: layer_norm_fn(x, w, b, weight1=w1, bias1=b1, eps=1e-5)
)  # fmt: skip
kfuzz.kernel(
    ops.rope.fixed(repeats=2), name="flash_rotary",
    shape_class="D <= 256",
)(lambda x, cos, sin, interleaved, repeats: apply_rotary(
    x, cos, sin, interleaved=interleaved
))  # fmt: skip
kfuzz.kernel(
    ops.cross_entropy.fixed(reduction="none"), name="flash_cross_entropy",
    out_of_bounds="undefined",
    dtypes={"float32"},
)(lambda logits, target, ignore_index, label_smoothing, reduction: (
    cross_entropy_loss(
        logits, target, label_smoothing=label_smoothing, ignore_index=ignore_index
    )[0]
))  # fmt: skip
