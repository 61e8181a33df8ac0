"""Faults of flash-linear-attention."""

from typing import Final

from tests.benchmarks.known_faults.entry import Entry, Fault, Further

_REPOSITORY: Final = "https://github.com/fla-org/flash-linear-attention"
_ISSUE: Final = f"{_REPOSITORY}/issues/"
_PULL: Final = f"{_REPOSITORY}/pull/"
_COMMIT: Final = f"{_REPOSITORY}/commit/"
_HUGE: Final = "offsets beyond 2^31 need tensors of gigabytes"


def _entry(
    name: str,
    versions: tuple[str, str],
    function: str,
    binding: str,
    threads: tuple[str, ...],
    fault: Fault,
    shows: str,
    needs_gpu: str = "",
    further: tuple[Further, ...] = (),
) -> Entry:
    return Entry(
        f"fla-{name}",
        # Its kernels are in a distribution of their own from 0.3.2 on.
        "fla-core" if versions[0] >= "0.3.2" else "flash-linear-attention",
        *versions,
        f"fla.{function}",
        f"fla_{binding}",
        threads,
        fault,
        shows,
        needs_gpu,
        further,
        "fla-core" if versions[1] >= "0.3.2" else "",
    )


_STRIDES: Final = (f"{_ISSUE}759", f"{_PULL}765")
FLA: Final = (
    _entry(
        "swish-strides",
        ("0.4.1", "0.4.2"),
        "modules.activations.swish",
        "modules.py::swish",
        _STRIDES,
        Fault.STRIDE,
        "A view is read as if it were contiguous.",
    ),
    _entry(
        "swiglu-strides",
        ("0.4.1", "0.4.2"),
        "modules.activations.swiglu",
        "modules.py::swiglu",
        _STRIDES,
        Fault.STRIDE,
        "Gate and up are read as if they had the same strides.",
    ),
    _entry(
        "bias-gelu-gradient",
        ("0.5.0", "0.5.1"),
        "modules.activations.bias_gelu_impl",
        "modules.py::bias_gelu.backward",
        (f"{_PULL}921",),
        Fault.GRADIENT,
        "The backward returns a pair for each gradient and raises.",
    ),
    _entry(
        "gated-norm-linear-gradient",
        ("0.5.2", "0.6.0"),
        "modules.fused_norm_gate.layer_norm_swish_gate_linear",
        "modules.py::gated_norm_linear.backward",
        (f"{_PULL}1071",),
        Fault.GRADIENT,
        "The gradient of the linear weight leaves out the gate.",
    ),
    _entry(
        "relu-squared-tail",
        ("0.5.2", "0.6.0"),
        "ops.rwkv7.channel_mixing.rwkv_relu_and_square_fwd",
        "modules.py::relu_squared",
        (f"{_PULL}1103",),
        Fault.UNMASKED,
        "Loads and stores have no mask: a size that is no multiple of 4,096 reads and "
        "writes past the end.",
        further=(
            Further(
                "C-EXC-01",
                "nan_missing",
                "y",
                True,
                "`tl.maximum(x, 0.0)` takes the 0 where x is NaN; the function for "
                "other devices in the same file, `torch.relu(x) ** 2`, gives NaN.",
            ),
        ),
    ),
    _entry(
        "l2-penalty-gradient",
        ("0.5.1", "0.5.2"),
        "modules.l2warp.l2_warp",
        "modules.py::l2_penalty",
        (f"{_PULL}963",),
        Fault.GRADIENT,
        "The gradient of the penalty ignores the upstream gradient.",
    ),
    _entry(
        "grpo-old-logps-sign",
        ("0.5.2", "0.6.0"),
        "modules.grpo.grpo_loss_with_old_logps",
        "modules.py::grpo_with_old_logps",
        (f"{_PULL}1076",),
        Fault.WRONG,
        "The loss has the wrong sign.",
    ),
    _entry(
        "token-shift-one-token",
        ("0.3.1", "0.3.2"),
        "modules.token_shift.token_shift",
        "sequences.py::token_shift",
        (f"{_PULL}583",),
        Fault.RAISES,
        "One token without a cache is taken for decoding with one.",
    ),
    _entry(
        "local-cumsum-reversed",
        ("0.5.2", "0.6.0"),
        "ops.utils.cumsum.chunk_local_cumsum",
        "sequences.py::local_cumsum",
        (f"{_PULL}1095",),
        Fault.PRECISION,
        "A reversed sum is the total less the prefix, which cancels.",
    ),
    _entry(
        "conv-gradient-strides",
        ("0.5.0", "0.5.1"),
        "modules.conv.causal_conv1d",
        "sequences.py::causal_conv1d.backward",
        (f"{_PULL}871",),
        Fault.STRIDE,
        "An upstream gradient that is a view is read as if it were contiguous.",
        further=tuple(
            Further(
                "K-GRD-01",
                kind,
                "dstate",
                True,
                "The gradient of the initial state reads it so still, up to 0.5.2: "
                "see #1138.",
            )
            for kind in ("value", "inf_unexpected", "nan_unexpected")
        ),
    ),
    _entry(
        "conv-short-chunk-gradient",
        ("0.5.2", "0.6.0"),
        "modules.conv.causal_conv1d",
        "sequences.py::causal_conv1d_with_state.backward",
        (f"{_ISSUE}1140", f"{_PULL}1141"),
        Fault.GRADIENT,
        "Fewer tokens than the width shift the gradient of the final state.",
        further=(
            Further(
                "K-MEM-01",
                "read_outside",
                "grad_y",
                True,
                "Channel times stride is formed in 32 bits: a gradient whose channels "
                "lie 2^30 or more elements apart is read before its start.",
            ),
        ),
    ),
    _entry(
        "conv-initial-state-gradient",
        ("0.4.1", "0.4.2"),
        "modules.convolution.causal_conv1d",
        "sequences.py::causal_conv1d.backward",
        (f"{_PULL}714",),
        Fault.GRADIENT,
        "An initial state without a final one takes the path for no state.",
    ),
    _entry(
        "rotary-offset-bounds",
        ("0.2.1", "0.2.2"),
        "modules.rotary.rotary_embedding",
        "sequences.py::rotary",
        (f"{_PULL}423",),
        Fault.UNMASKED,
        "A negative offset reads before the tables of cos and sin.",
        further=(
            Further(
                "K-MEM-02",
                "unwritten",
                "y",
                True,
                "Rows of left padding are never written, up to 0.5.1: see #967.",
            ),
        ),
    ),
    _entry(
        "rotary-padding-unwritten",
        ("0.5.1", "0.5.2"),
        "modules.rotary.rotary_embedding",
        "sequences.py::rotary",
        (f"{_PULL}967",),
        Fault.UNWRITTEN,
        "Rows of left padding keep what memory held before.",
    ),
    _entry(
        "kda-gate-unmasked",
        ("0.5.2", "0.6.0"),
        "ops.kda.fused_recurrent_kda",
        "recurrent.py::kda",
        (f"{_ISSUE}1134", f"{_PULL}1135"),
        Fault.UNMASKED,
        "Gates are loaded without a mask: past the end where the head size is no "
        "power of two.",
    ),
    _entry(
        "simple-gla-gate-gradient",
        ("0.2.2", "0.3.0"),
        "ops.simple_gla.fused_recurrent_simple_gla",
        "recurrent.py::simple_gla.backward",
        (f"{_PULL}459",),
        Fault.GRADIENT,
        "The gradient of the gate ignores the gradient of the final state.",
    ),
    _entry(
        "linear-attention-normaliser",
        ("0.3.2", "0.4.0"),
        "ops.linear_attn.fused_recurrent_linear_attn",
        "recurrent.py::normalised_linear_attention",
        (f"{_PULL}594",),
        Fault.WRONG,
        "Keys are summed along the heads, not along time.",
        further=tuple(
            Further(
                "K-GRD-01",
                kind,
                "dk",
                True,
                "The gradient of the keys leaves out the normaliser, whose quotient "
                "also keeps it in range: the fault of the next entry, mended in 0.5.1.",
            )
            for kind in ("value", "inf_unexpected", "nan_unexpected")
        ),
    ),
    _entry(
        "linear-attention-key-gradient",
        ("0.5.0", "0.5.1"),
        "ops.linear_attn.fused_recurrent_linear_attn",
        "recurrent.py::normalised_linear_attention.backward",
        (f"{_PULL}875",),
        Fault.GRADIENT,
        "The gradient of the keys leaves out the normaliser.",
    ),
    _entry(
        "attention-decoding-tail",
        ("0.2.0", "0.2.1"),
        "ops.forgetting_attn.decoding.attn_decoding_one_step",
        "attention.py::attention_decoding",
        (f"{_COMMIT}d7150bf9c992753d0024d4817a5c9bbb9b1c1723",),
        Fault.TAIL,
        "Keys past the end of a sequence take part in the softmax with a score of 0.",
    ),
    _entry(
        "attention-decoding-wide-values",
        ("0.5.1", "0.5.2"),
        "ops.attn.decoding.attn_decoding_one_step",
        "attention.py::attention_decoding_wide",
        (f"{_PULL}1031",),
        Fault.WRONG,
        "Every block of the values is stored at the first one's place; the rest of "
        "the result is never written.",
    ),
)
