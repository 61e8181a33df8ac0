"""Triton kernels of sglang 0.5.23 as released, without the server around them.

The package's own `__init__` imports the server; placeholders take the place of what
has nothing to do with the kernels: which platform this is, how many processors it has.
Where a kernel's code or documentation says what it takes, a declaration says the same:
rows lie one after the other, a row is one block, no more experts than a power of two.
"""

import importlib
import sys
from types import ModuleType

import torch

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops
from tests.hunt.bare import absent, bare

PACKAGE = "sglang"
VERSION = "0.5.23"
NEEDS = ()


def _no(*_: object) -> bool:
    return False


bare("sglang")
absent(
    "sglang.srt.utils", "sglang.srt.utils.common",
    get_device_core_count=lambda *_: 4,
    get_device_capability=lambda *_: (9, 0),
    cdiv=lambda a, b: -(-a // b),
    next_power_of_2=lambda n: 1 << (n - 1).bit_length(),
    device_context=torch.device,
    get_bool_env_var=_no,
    torch_release=(2, 13),
)  # fmt: skip
absent(
    "sglang.kernels.jit.utils", cache_once=lambda made: made, is_arch_support_pdl=_no
)
absent("sglang.srt.layers.deep_gemm_wrapper.configurer", ENABLE_JIT_DEEPGEMM=False)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"sglang.{name}")


invariant = _module("srt.batch_invariant_ops.batch_invariant_ops")
sys.modules["sglang.srt.batch_invariant_ops"].is_batch_invariant_mode_enabled = _no
rows_logsumexp = _module("srt.layers.logsumexp")
norms = _module("kernels.ops.layernorm.fused_rmsnorm")
gemma = _module("kernels.ops.layernorm.minimax_m3_rmsnorm")
gelu = _module("kernels.ops.activation.gelu_and_mul_triton")
softcap = _module("kernels.ops.activation.softcap")
swiglu_oai = _module("kernels.ops.activation.minimax_m3_swiglu")
merge = _module("kernels.ops.attention.merge_state")
mrope = _module("kernels.ops.attention.mrope")

l2 = _module("kernels.ops.attention.fla.l2norm")
combine = _module("kernels.ops.moe.moe_fused_mul_sum")
router = _module("kernels.ops.moe.router")
padding = _module("kernels.ops.moe.fill_padded_rows")

awq = _module("kernels.ops.quantization.awq_triton")
rowwise = _module("kernels.ops.elementwise.row_scale")
elementwise = _module("kernels.ops.elementwise.elementwise")
argmaxes = _module("kernels.ops.speculative.row_argmax")
bitmask = _module("kernels.ops.grammar.bitmask_ops")


def _mean(x: torch.Tensor) -> torch.Tensor:
    """As mean_dim, which asks for a GPU."""
    if len(y := x.new_empty(len(x))):
        invariant.mean_kernel[(len(x),)](
            x, y, *x.stride(), 0, 1, 0, len(x), x.shape[1], 1, 1024
        )
    return y


ROWS = "N <= 16384"  # a row is one block, which is what the callers' models have
contiguous = {"layouts": "contiguous", "shape_class": ROWS}
float32_rows = {"dtypes": {"float32"}, "ranks": {2}, "layouts": "inner_contiguous"}

kfuzz.kernel(ops.matmul, name="sglang_matmul")(
    lambda a, b: invariant.matmul_persistent(a, b)
)
kfuzz.kernel(ops.bmm, name="sglang_bmm")(
    lambda a, b: invariant.bmm_batch_invariant(a, b)
)
kfuzz.kernel(ops.log_softmax, dims={-1}, name="sglang_log_softmax")(
    lambda x, dim=-1: invariant.log_softmax(x, dim)
)
kfuzz.kernel(ops.rms_norm, name="sglang_rms_norm")(
    lambda x, weight, eps=1e-6: invariant.rms_norm(x, weight, eps)
)
kfuzz.kernel(ops.rms_norm, name="sglang_fused_rmsnorm", ranks={2}, **contiguous)(
    lambda x, weight, eps=1e-6: norms.fused_rmsnorm(x, weight, eps)
)
kfuzz.kernel(
    ops.geglu, name="sglang_gelu_and_mul", intermediates="output", ranks={2},
    **contiguous,
)(lambda gate, up: gelu.gelu_and_mul_triton(torch.cat((gate, up), -1))[0])  # fmt: skip
kfuzz.kernel(
    ops.logsumexp, dims={-1}, ranks={2}, dtypes={"float32"}, name="sglang_logsumexp"
)(lambda x, dim=-1: sum(rows_logsumexp.row_logsumexp(x)))
kfuzz.kernel(
    ops.mean, dims={-1}, ranks={2}, shape_class="N >= 1", name="sglang_mean_dim"
)(lambda x, dim=-1: _mean(x))
kfuzz.kernel(
    kfuzz.Operator("mean_of_all", {"x": ks.tensors("M N")}, oracle=torch.mean,
                   shape_class="M >= 1 and N >= 1", results={"y": "float32"}),
    name="sglang_mean_of_all",
)(lambda x: invariant.mean_batch_invariant(x, []))  # fmt: skip
kfuzz.kernel(ops.argmax, dims={-1}, name="sglang_row_argmax", **float32_rows)(
    lambda x, dim=-1: argmaxes.row_argmax(x)
)

kfuzz.kernel(
    kfuzz.Operator(
        "dual_residual_rmsnorm",
        inputs={
            "x": ks.tensors("M N"),
            "residual": ks.tensors("M N"),
            "w1": ks.tensors("N", role="weight"),
            "w2": ks.tensors("N", role="weight"),
        },
        oracle=lambda x, residual, w1, w2: _norm(_norm(x) * w1 + residual) * w2,
        shape_class="N >= 1 and N <= 4096",
    ),
    layouts="contiguous",
    intermediates="output",
    name="sglang_dual_residual_rmsnorm",
)(lambda x, r, w1, w2: norms.fused_dual_residual_rmsnorm(x, r, w1, w2, 1e-6)[0])


def _norm(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def _gemma(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return _norm(x) * (1 + weight)


wide = {"x": ks.tensors("* N"), "weight": ks.tensors("N", role="weight")}
gemma_norm = kfuzz.Operator(
    "gemma_rms_norm", inputs=wide, oracle=_gemma, shape_class="N >= 1 and N <= 4096"
)
kfuzz.kernel(gemma_norm, name="sglang_gemma_rmsnorm")(
    lambda x, weight: gemma.gemma_rmsnorm(x, weight.contiguous(), 1e-6)
)
gemma_add = kfuzz.Operator(
    "gemma_add_rms_norm",
    inputs={"x": ks.tensors("* N"), "residual": ks.tensors("* N"), **wide},
    oracle=lambda x, residual, weight: _gemma(x + residual, weight),
    shape_class="N >= 1 and N <= 4096",
)
kfuzz.kernel(gemma_add, intermediates="output", name="sglang_gemma_add_rmsnorm")(
    lambda x, residual, weight: gemma.gemma_fused_add_rmsnorm(
        x, residual, weight.contiguous(), 1e-6
    )[0]
)
l2norm = kfuzz.Operator(
    "l2norm",  # eps under the root
    inputs={"x": ks.tensors("* N")},
    oracle=lambda x: x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6),
    shape_class="N >= 1 and N <= 4096",
)
kfuzz.kernel(l2norm, layouts="contiguous", name="sglang_l2norm")(
    lambda x: l2.l2norm_fwd(x)
)
capped = kfuzz.Operator(
    "softcap",
    inputs={"x": ks.tensors("M N")},
    oracle=lambda x: torch.tanh(x / 30.0) * 30.0,
)
kfuzz.kernel(capped, dtypes={"float32"}, layouts="contiguous", name="sglang_softcap")(
    lambda x: softcap.softcap_inplace_logits(x.clone(), 30.0)
)
kfuzz.kernel(capped, layouts="inner_contiguous", name="sglang_softcap_to_float32")(
    lambda x: softcap.softcap_to_float32_logits(
        x, 30.0, torch.empty(x.shape, device=x.device)
    ).to(x.dtype)
)
oai = kfuzz.Operator(
    "swiglu_oai",
    inputs={"gate": ks.tensors("M N"), "up": ks.tensors("M N")},
    oracle=lambda gate, up: (
        (g := gate.clamp(max=7.0))
        * torch.sigmoid(1.702 * g)
        * (up.clamp(-7.0, 7.0) + 1.0)
    ),
)
kfuzz.kernel(oai, name="sglang_swiglu_oai")(
    lambda gate, up: swiglu_oai.swiglu_oai_split(
        torch.cat((gate, up), -1), 1.702, 1.0, 7.0
    )
)
gate_rows = {"x": ks.tensors("M N"), "gate": ks.tensors("M N")}
kfuzz.kernel(
    kfuzz.Operator(
        "sigmoid_mul",
        inputs=gate_rows,
        oracle=lambda x, gate: x * torch.sigmoid(gate),
    ),
    layouts="contiguous",
    name="sglang_sigmoid_mul",
)(lambda x, gate: elementwise.fused_sigmoid_mul(x, gate))
kfuzz.kernel(
    kfuzz.Operator(
        "sigmoid_gate_mul",
        inputs={"x": ks.tensors("M N"), "gate": ks.tensors("M O")},
        oracle=lambda x, gate: x * torch.sigmoid(gate),
        shape_class="O == 1 and N >= 1 and N <= 4096",
    ),
    layouts="contiguous",
    name="sglang_sigmoid_gate_mul",
)(lambda x, gate: elementwise.sigmoid_gate_mul_broadcast(x, gate))
kfuzz.kernel(
    kfuzz.Operator(
        "gate_sigmoid_mul",
        inputs={
            "h": ks.tensors("M N"),
            "weight": ks.tensors("N", role="weight"),
            "shared": ks.tensors("M N"),
        },
        oracle=lambda h, weight, shared: torch.sigmoid(h @ weight)[:, None] * shared,
        shape_class="N >= 1 and N <= 4096",
    ),
    layouts="contiguous",
    name="sglang_gate_sigmoid_mul",
)(lambda h, weight, shared: elementwise.fused_gate_sigmoid_mul(h, weight, shared))
kfuzz.kernel(
    kfuzz.Operator(
        "row_scale",
        inputs={"x": ks.tensors("M N"), "tau": ks.tensors("M", dtype="float32")},
        oracle=lambda x, tau: x * tau[:, None],
    ),
    name="sglang_row_scale",
)(lambda x, tau: rowwise.apply_log_scaling_tau(x, tau.reshape(-1, 1).contiguous()))


def _share(own: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Of a state; 0 of one that saw no key."""
    return torch.sigmoid(own - other).where(own > -torch.inf, 0.0)


kfuzz.kernel(
    kfuzz.Operator(
        "merge_state",
        inputs={
            "a": ks.tensors("T H D"),
            "s": ks.tensors("T H", dtype="float32", within="[-inf, 80]"),
            "b": ks.tensors("T H D"),
            "t": ks.tensors("T H", dtype="float32", within="[-inf, 80]"),
        },
        oracle=lambda a, s, b, t: (
            a * _share(s, t)[..., None] + b * _share(t, s)[..., None]
        ),
        shape_class="D >= 1 and D <= 256",
    ),
    layouts="contiguous",
    name="sglang_merge_state",
)(lambda a, s, b, t: merge.merge_state_triton(a, s, b, t)[0])
kfuzz.kernel(
    kfuzz.Operator(
        "moe_mul_sum",
        inputs={"x": ks.tensors("T K N"), "weights": ks.tensors("T K")},
        oracle=lambda x, weights: (x * weights[..., None]).sum(1),
        shape_class="K >= 1 and K <= 8",
    ),
    layouts="contiguous",
    name="sglang_moe_mul_sum",
)(lambda x, weights: combine.moe_fused_mul_sum(x, weights))
kfuzz.kernel(
    kfuzz.Operator(
        "router_weights",  # the ids depend on ties
        inputs={"x": ks.tensors("M K"), "w": ks.tensors("E K")},
        oracle=lambda x, w: torch.softmax(x @ w.T, -1).topk(2).values,
        shape_class="E == 8 and K >= 1 and K <= 1024",
    ),
    layouts="contiguous",
    dtypes={"float32"},
    name="sglang_router",
)(lambda x, w: router.fused_moe_router_cudacore(x, w, 2, 0)[0])
kfuzz.kernel(
    kfuzz.Operator(
        "router_softcapped",
        inputs={"x": ks.tensors("M K"), "w": ks.tensors("E K")},
        oracle=lambda x, w: (
            torch.softmax(30 * torch.tanh(x @ w.T / 30), -1).topk(2).values
        ),
        shape_class="E == 8 and K >= 1 and K <= 1024",
    ),
    layouts="contiguous",
    dtypes={"float32"},
    name="sglang_router_softcapped",
)(lambda x, w: router.fused_moe_router_cudacore(x, w, 2, 30.0)[0])


def _filled(x: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(len(x), device=x.device)[:, None]
    return torch.where(rows < valid, x, torch.zeros_like(x))


def _fill(x: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    filled = x.clone()
    padding._fill_padded_rows(filled, valid, 0.0)
    return filled


kfuzz.kernel(
    kfuzz.Operator(
        "fill_padded_rows",
        inputs={
            "x": ks.tensors("M N"),
            "valid": ks.tensors("O", dtype="int32", within=(0, 9)),
        },
        oracle=_filled,
        shape_class="O == 1 and N >= 1",
    ),
    layouts="contiguous",
    name="sglang_fill_padded_rows",
)(_fill)
kfuzz.kernel(
    kfuzz.Operator(
        "mrope_interleaved",
        inputs={"x": ks.tensors("R S D")},
        oracle=lambda x: _interleaved(x),
        shape_class="R == 3 and D == 64",
    ),
    name="sglang_interleaved_mrope",
)(lambda x: mrope.apply_interleaved_rope_triton(x, [24, 20, 20]))


def _interleaved(x: torch.Tensor) -> torch.Tensor:
    place = torch.arange(x.shape[-1])
    axis = torch.where(place < 60, place % 3, 0)
    return x.gather(0, axis.expand(1, x.shape[1], -1))[0]


kfuzz.kernel(
    kfuzz.Operator(
        "awq_dequantize",
        inputs={
            "codes": ks.tensors("K P", dtype="int32", within=(0, 2**31 - 1)),
            "scales": ks.tensors("G N", role="weight"),
            "zeros": ks.tensors("G P", dtype="int32", within=(0, 2**31 - 1)),
        },
        oracle=lambda codes, scales, zeros: _dequantized(codes, scales, zeros),
        shape_class="N == 8 * P and K == 32 * G and P >= 1 and G >= 1",
    ),
    layouts="contiguous",
    name="sglang_awq_dequantize",
)(lambda codes, scales, zeros: awq.awq_dequantize_triton(codes, scales, zeros))


def _unpacked(codes: torch.Tensor) -> torch.Tensor:
    shifts = torch.tensor([0, 16, 4, 20, 8, 24, 12, 28])
    return (codes[..., None] >> shifts & 15).flatten(-2)


def _dequantized(
    codes: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor
) -> torch.Tensor:
    group = len(codes) // len(zeros)
    offset = (_unpacked(codes) - _unpacked(zeros).repeat_interleave(group, 0)).double()
    return offset * scales.repeat_interleave(group, 0)


def _masked(logits: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    bits = (allowed[..., None] >> torch.arange(32) & 1).flatten(-2)
    return logits.masked_fill(bits[:, : logits.shape[1]] == 0, float("-inf"))


def _mask(logits: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    bitmask.apply_token_bitmask_inplace_triton(logits, allowed)
    return logits


kfuzz.kernel(
    kfuzz.Operator(
        "token_bitmask",
        inputs={
            "logits": ks.tensors("M V"),
            "allowed": ks.tensors("M W", dtype="int32", within=(0, 2**31 - 1)),
        },
        oracle=_masked,
        shape_class="V == 32 * W and W >= 1",
    ),
    layouts="inner_contiguous",
    inplace=("logits",),
    name="sglang_token_bitmask",
)(_mask)
