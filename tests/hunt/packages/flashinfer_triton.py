"""Triton kernels of flashinfer-python 0.7.4 as released.

The modules are imported without the packages above them, which load CUDA; their
checks that a tensor is on a GPU, and on Hopper, are left out. Where its code says so,
a claim stands beside: matrices of two dimensions, contiguous states of attention whose
logarithms are to base 2 and above the -5e4 that stands for no key.
"""

import importlib
from typing import Any

import torch
import torch.nn.functional as F

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops
from tests.hunt.bare import absent, bare

PACKAGE = "flashinfer-python"
VERSION = "0.7.4"
NEEDS: tuple[str, ...] = ()


bare("flashinfer")
absent(
    "flashinfer.utils",
    get_compute_capability=lambda device: (9, 0),
    GPUArchitectureError=RuntimeError,
)


def _module(name: str) -> Any:
    return importlib.import_module(f"flashinfer.triton.{name}")


norm, activation, cascade = map(_module, ("norm", "activation", "cascade"))
page, chunks = map(_module, ("page", "kernels.ssd_chunk_state"))
cascade.check_input = lambda x: None

NO_KEY = -5e4


def _merged(
    v: torch.Tensor, s: torch.Tensor, axis: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of v by weights 2^s, and the logarithm of the weights."""
    top = s.amax(axis, keepdim=True)
    weight = torch.exp2(s - top)
    total = weight.sum(axis)
    merged = (v * weight[..., None]).sum(axis) / total[..., None]
    return merged, torch.log2(total) + top.squeeze(axis)


def _merged_pair(
    v: torch.Tensor, s: torch.Tensor, v_other: torch.Tensor, s_other: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return _merged(torch.stack((v, v_other)), torch.stack((s, s_other)), 0)


def _merged_parts(
    v: torch.Tensor, s: torch.Tensor, indptr: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    merged = [
        _merged(v[start:end], s[start:end], 0)
        if end > start
        else (torch.zeros_like(v[0]), torch.full_like(s[0], NO_KEY))
        for start, end in zip(indptr.tolist(), indptr[1:].tolist(), strict=False)
    ]
    return torch.stack([v for v, _ in merged]), torch.stack([s for _, s in merged])


def _logarithms(dims: str) -> Any:
    return ks.tensors(dims, dtype="float32", within=(-1e4, 1e4))


STATE: dict[str, Any] = {
    "outputs": ("v_merged", "s_merged"),
    "results": {"s_merged": "float32"},
}
SMALL = "D >= 1 and H >= 1 and H * D <= 256"  # the interpreter takes each by itself
pair = kfuzz.Operator(
    "merge_state",
    inputs={
        "v": ks.tensors("T H D"), "s": _logarithms("T H"),
        "v_other": ks.tensors("T H D"), "s_other": _logarithms("T H"),
    },
    oracle=_merged_pair, shape_class=SMALL, **STATE,
)  # fmt: skip
several = kfuzz.Operator(
    "merge_states",
    inputs={"v": ks.tensors("T K H D"), "s": _logarithms("T K H")},
    oracle=lambda v, s: _merged(v, s, 1),
    shape_class=f"{SMALL} and K >= 1", **STATE,
)  # fmt: skip
parts = kfuzz.Operator(
    "variable_length_merge_states",
    inputs={
        "v": ks.tensors("T H D"), "s": _logarithms("T H"),
        "indptr": ks.offsets("P", of="T", dtype="int32"),
    },
    oracle=_merged_parts, shape_class=f"{SMALL} and T >= 1 and P >= 2", **STATE,
)  # fmt: skip


def _positions(
    indptr: torch.Tensor, lengths: torch.Tensor, places: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    counts = indptr.diff()
    batch = torch.repeat_interleave(torch.arange(len(lengths)), counts)
    place = torch.arange(len(places))
    return batch, place + lengths[batch] - indptr[1:][batch]


positions = kfuzz.Operator(
    "batch_indices_positions",
    inputs={
        "indptr": ks.offsets("P", of="T", dtype="int32"),
        "lengths": ks.tensors("B", dtype="int32", within=(0, 100_000)),
        "places": ks.tensors("T"),
    },
    oracle=_positions,
    outputs=("batch", "position"),
    results={"batch": "int32", "position": "int32"},
    shape_class="P == B + 1",
)


def _steps(
    dt: torch.Tensor, a: torch.Tensor, bias: torch.Tensor, *, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    steps = F.softplus(dt + bias)
    steps = F.pad(steps, (0, 0, 0, -dt.shape[1] % width)).unflatten(1, (-1, width))
    steps = steps.permute(0, 3, 1, 2)
    return (steps * a[:, None, None]).cumsum(-1), steps


chunk_cumsum = kfuzz.Operator(
    "chunk_cumsum",
    inputs={
        "dt": ks.tensors("B T H"),
        "a": ks.tensors("H", within=(None, 0), dtype="float32"),
        "bias": ks.tensors("H", role="bias", dtype="float32"),
    },
    oracle=lambda dt, a, bias: _steps(dt, a, bias, width=64),
    outputs=("sums", "steps"),
    results={"sums": "float32", "steps": "float32"},
    shape_class="T >= 1 and H >= 1",
)

# Rows are launched one a program, each by the stride of its own tensor.
MATRIX: dict[str, Any] = {"ranks": {2}, "layouts": "inner_contiguous"}


@kfuzz.kernel(ops.rms_norm, name="flashinfer_rms_norm", **MATRIX)
def flashinfer_rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    """Into a tensor of its own."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    norm.rms_norm(x, weight, out, eps)
    return out


@kfuzz.kernel(
    ops.add_rms_norm, intermediates="output", ranks={2}, layouts="contiguous",
    name="flashinfer_add_rms_norm",
)  # fmt: skip
def flashinfer_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of copies, which it overwrites."""
    x, residual = x.clone(), residual.clone()
    norm.rms_norm_add_residual(x, residual, weight, eps)
    return x, residual


kfuzz.kernel(
    ops.silu_and_mul,
    ranks={2},
    shape_class="D >= 2",
    layouts="inner_contiguous",
    name="flashinfer_silu_and_mul",
)(lambda x: activation.silu_and_mul(x))
kfuzz.kernel(pair, layouts="contiguous", name="flashinfer_merge_state")(
    lambda v, s, v_other, s_other: cascade.merge_state(v, s, v_other, s_other)
)


@kfuzz.kernel(pair, layouts="contiguous", name="flashinfer_merge_state_in_place")
def flashinfer_merge_state_in_place(
    v: torch.Tensor, s: torch.Tensor, v_other: torch.Tensor, s_other: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of copies, which it overwrites."""
    v, s = v.clone(), s.clone()
    cascade.merge_state_in_place(v, s, v_other, s_other)
    return v, s


kfuzz.kernel(several, layouts="contiguous", name="flashinfer_merge_states")(
    lambda v, s: cascade.merge_states(v, s)
)
kfuzz.kernel(parts, layouts="contiguous", name="flashinfer_merge_parts")(
    lambda v, s, indptr: cascade.variable_length_merge_states(v, s, indptr)
)


@kfuzz.kernel(positions, layouts="contiguous", name="flashinfer_positions")
def flashinfer_positions(
    indptr: torch.Tensor, lengths: torch.Tensor, places: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `flashinfer.page` launches it; places only says how many there are."""
    batch = torch.empty(len(places), dtype=torch.int32, device=indptr.device)
    position = torch.empty_like(batch)
    page.get_batch_indices_positions_kernel[(len(lengths),)](
        indptr, lengths, batch, position, num_stages=2
    )
    return batch, position


kfuzz.kernel(chunk_cumsum, offsets="int32", name="flashinfer_chunk_cumsum")(
    lambda dt, a, bias: chunks.chunk_cumsum_fwd(
        dt, a, 64, dt_bias=bias, dt_softplus=True
    )
)
