"""Triton kernels of mamba-ssm 2.3.2.post1 as released.

Its `__init__` asks for compiled extensions: modules are imported below an empty one.
Rows of the norms have at most 64 KiB; a state is updated in place.
"""

from types import SimpleNamespace
from unittest import mock

import torch
import torch.nn.functional as F

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops
from tests.hunt.bare import bare

PACKAGE = "mamba-ssm"
VERSION = "2.3.2.post1"
NEEDS = ("einops==0.8.1",)

bare("mamba_ssm")
_device = SimpleNamespace(warp_size=32, max_threads_per_block=1024)  # of any GPU
with mock.patch("torch.cuda.get_device_properties", return_value=_device):
    from mamba_ssm.ops.triton.k_activations import swiglu
    from mamba_ssm.ops.triton.layer_norm import layer_norm_fn, rms_norm_fn
    from mamba_ssm.ops.triton.layernorm_gated import layernorm_fn, rmsnorm_fn
    from mamba_ssm.ops.triton.selective_state_update import selective_state_update
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

ROWS = "N >= 2 and N <= 16384"

kfuzz.kernel(ops.layer_norm, name="mamba_layer_norm", shape_class=ROWS)(
    lambda x, weight, bias=None, eps=1e-6: layer_norm_fn(x, weight, bias, eps=eps)
)
kfuzz.kernel(ops.rms_norm, name="mamba_rms_norm", shape_class=ROWS)(
    lambda x, weight, eps=1e-6: rms_norm_fn(x, weight, None, eps=eps)
)
kfuzz.kernel(ops.add_rms_norm, name="mamba_add_rms_norm", shape_class=ROWS)(
    lambda x, residual, weight, eps=1e-6: rms_norm_fn(
        x, weight, None, residual=residual, eps=eps, prenorm=True
    )
)
kfuzz.kernel(ops.gated_rms_norm, name="mamba_gated_rms_norm", shape_class=ROWS)(
    lambda x, gate, weight, eps=1e-6, norm_before_gate=True: rmsnorm_fn(
        x, weight, None, gate, eps, None, norm_before_gate
    )
)
kfuzz.kernel(ops.gated_layer_norm, name="mamba_gated_layer_norm", shape_class=ROWS)(
    lambda x, gate, weight, bias=None, eps=1e-6, norm_before_gate=True: layernorm_fn(
        x, weight, bias, gate, eps, None, norm_before_gate
    )
)


kfuzz.kernel(ops.silu_and_mul, shape_class="D >= 2", name="mamba_swiglu")(
    lambda xy: swiglu(xy)
)


def _updated(
    state: torch.Tensor, x: torch.Tensor, dt: torch.Tensor, a: torch.Tensor,
    b: torch.Tensor, c: torch.Tensor, d: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> torch.Tensor:  # fmt: skip
    dt = F.softplus(dt if bias is None else dt + bias)
    kept = torch.exp(dt[..., None] * a) * state
    new = kept + (dt * x)[..., None] * b[:, None]
    y = (new * c[:, None]).sum(-1)
    return y if d is None else y + x * d


kfuzz.kernel(
    kfuzz.Operator(
        "selective_state_update",
        inputs={
            "state": ks.tensors("B D N"), "x": ks.tensors("B D"),
            "dt": ks.tensors("B D"), "a": ks.tensors("D N", within=(None, 0)),
            "b": ks.tensors("B N"), "c": ks.tensors("B N"),
            "d": ks.tensors("D", role="weight", optional=True),
            "bias": ks.tensors("D", role="bias", optional=True),
        },
        oracle=_updated,
        shape_class="B >= 1 and D >= 1 and N >= 1 and N <= 128",
    ),
    name="mamba_selective_state_update", dtypes={"float32"},
)(lambda state, x, dt, a, b, c, d=None, bias=None: selective_state_update(
    state.clone(), x, dt, a, b, c, d, dt_bias=bias, dt_softplus=True
))  # fmt: skip


def _scanned(
    x: torch.Tensor, dt: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor
) -> torch.Tensor:
    state = x.new_zeros(*x.shape[:1], *x.shape[2:], b.shape[-1])
    rows = []
    for t in range(x.shape[1]):
        kept = torch.exp(dt[:, t] * a)[..., None, None] * state
        state = kept + (dt[:, t, :, None] * x[:, t])[..., None] * b[:, t, None]
        rows.append((state * c[:, t, None]).sum(-1))
    return torch.stack(rows, 1)


kfuzz.kernel(
    kfuzz.Operator(
        "ssd_chunk_scan",
        inputs={
            "x": ks.tensors("B T H P"), "dt": ks.tensors("B T H", within=(0, 1)),
            "a": ks.tensors("H", within=(-1, 0)),
            "b": ks.tensors("B T G N"), "c": ks.tensors("B T G N"),
        },
        oracle=lambda x, dt, a, b, c: _scanned(x, dt, a, b, c),
        shape_class="B >= 1 and T >= 1 and T <= 64 and H >= 1 and P >= 1 and G == 1 "
        "and N >= 16 and P % 16 == 0 and N % 16 == 0 and P <= 64 and N <= 64",
    ),
    name="mamba_chunk_scan", dtypes={"float32"}, layouts="contiguous",
)(lambda x, dt, a, b, c: mamba_chunk_scan_combined(x, dt, a, b, c, 32))  # fmt: skip
