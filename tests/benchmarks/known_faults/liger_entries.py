"""Faults of Liger-Kernel."""

from typing import Final

from tests.benchmarks.known_faults.entry import Entry, Fault, Further

_ISSUE: Final = "https://github.com/linkedin/Liger-Kernel/issues/"
_PULL: Final = "https://github.com/linkedin/Liger-Kernel/pull/"
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
        f"liger-{name}",
        "liger-kernel",
        *versions,
        f"liger_kernel.{function}",
        f"liger_{binding}",
        threads,
        fault,
        shows,
        needs_gpu,
        further,
    )


_FIRST_OF_UPSTREAM: Final = (
    "All rows are scaled by the first element of the upstream gradient: the fault of "
)

_MENDED_IN_082: Final = tuple(
    Further(
        "K-GRD-01",
        "value",
        output,
        True,
        f"{_FIRST_OF_UPSTREAM}`fused-linear-none-gradient`, mended in 0.8.2.",
    )
    for output in ("dx", "dweight")
)

LIGER: Final = (
    _entry(
        "layer-norm-tail",
        ("0.5.3", "0.5.4"),
        "ops.layer_norm.LigerLayerNormFunction",
        "norms.py::layer_norm",
        (f"{_ISSUE}518", f"{_PULL}519", f"{_PULL}582"),
        Fault.TAIL,
        "The variance sums the squared mean of the padded lanes: rows that do not "
        "fill their block come out too small.",
    ),
    _entry(
        "layer-norm-halves-gradient",
        ("0.5.3", "0.5.4"),
        "ops.layer_norm.LigerLayerNormFunction",
        "norms.py::layer_norm_in_full_blocks.backward",
        (f"{_PULL}582",),
        Fault.GRADIENT,
        "Gradients of float16 data are rounded to bfloat16 on the way.",
        further=tuple(
            Further(
                "K-GRD-01",
                "value",
                output,
                True,
                "Each program rounds its sum over rows to float16 (`_DW` and `_DB` "
                "have the weight's type) before these are added: 12736 for a sum of "
                "12744. #945 keeps them in float32.",
            )
            for output in ("dweight", "dbias")
        ),
    ),
    _entry(
        "layer-norm-halves-sum",
        ("0.6.0", "0.6.1"),
        "ops.layer_norm.LigerLayerNormFunction",
        "norms.py::layer_norm_of_halves",
        (f"{_PULL}815",),
        Fault.PRECISION,
        "Mean and variance of float16 rows are summed in float16.",
    ),
    _entry(
        "layer-norm-halves-atomics",
        ("0.6.3", "0.6.4"),
        "ops.layer_norm.LigerLayerNormFunction",
        "norms.py::layer_norm_in_full_blocks.backward",
        (f"{_PULL}945",),
        Fault.PRECISION,
        "The gradients of weight and bias are added up by float16 atomics.",
    ),
    _entry(
        "layer-norm-int32",
        ("0.6.0", "0.6.1"),
        "ops.layer_norm.LigerLayerNormFunction",
        "norms.py::layer_norm",
        (f"{_PULL}815",),
        Fault.INT32,
        "Row times stride wraps in int32.",
        _HUGE,
    ),
    _entry(
        "rms-norm-halves-sum",
        ("0.1.1", "0.2.0"),
        "ops.rms_norm.LigerRMSNormFunction",
        "norms.py::rms_norm",
        (f"{_ISSUE}89", f"{_PULL}92"),
        Fault.PRECISION,
        "Squares of float16 rows are summed in float16: they overflow at 256.",
        further=(
            Further(
                "K-MEM-03",
                "input_modified",
                "grad_y",
                True,
                "The backward stores dX over the upstream gradient, which autograd may "
                "hand to others too: #370, for which #376 adds `in_place=False`.",
            ),
        ),
    ),
    _entry(
        "swiglu-int32",
        ("0.3.0", "0.3.1"),
        "ops.swiglu.LigerSiLUMulFunction",
        "rotary.py::swiglu",
        (f"{_PULL}251", f"{_PULL}274"),
        Fault.INT32,
        "Row times stride wraps in int32.",
        _HUGE,
    ),
    _entry(
        "rope-positions-by-item",
        ("0.5.2", "0.5.3"),
        "ops.rope.LigerRopeFunction",
        "rotary.py::rope",
        (f"{_PULL}477",),
        Fault.IGNORED,
        "Every item of a batch is turned by the angles of the first.",
    ),
    _entry(
        "cross-entropy-reduction-none",
        ("0.4.2", "0.5.0"),
        "ops.cross_entropy.LigerCrossEntropyFunction",
        "losses.py::cross_entropy_none",
        (f"{_PULL}435",),
        Fault.IGNORED,
        'reduction="none" returns the sum.',
        further=(
            Further(
                "K-GRD-01",
                "value",
                "dlogits",
                True,
                f"{_FIRST_OF_UPSTREAM}the next entry, mended in 0.5.9.",
            ),
        ),
    ),
    _entry(
        "cross-entropy-none-gradient",
        ("0.5.8", "0.5.9"),
        "ops.cross_entropy.LigerCrossEntropyFunction",
        "losses.py::cross_entropy_none.backward",
        (f"{_ISSUE}678", f"{_PULL}680"),
        Fault.GRADIENT,
        "All rows are scaled by the first element of the upstream gradient.",
    ),
    _entry(
        "cross-entropy-target-bounds",
        ("0.5.4", "0.5.5"),
        "ops.cross_entropy.LigerCrossEntropyFunction",
        "losses.py::cross_entropy",
        (f"{_PULL}588",),
        Fault.INDEX,
        "A target beyond the vocabulary is read out of bounds, without an error.",
    ),
    _entry(
        "fused-linear-none-gradient",
        ("0.8.1", "0.8.2"),
        "ops.fused_linear_cross_entropy.LigerFusedLinearCrossEntropyFunction",
        "losses.py::fused_linear_cross_entropy_none.backward",
        (f"{_PULL}1298",),
        Fault.GRADIENT,
        "Gradients are scaled by the first element of the upstream gradient.",
    ),
    _entry(
        "fused-linear-without-gradient",
        ("0.6.3", "0.6.4"),
        "ops.fused_linear_cross_entropy.LigerFusedLinearCrossEntropyFunction",
        "losses.py::fused_linear_cross_entropy_none",
        (f"{_ISSUE}930", f"{_PULL}931"),
        Fault.RAISES,
        "A call without gradients raises UnboundLocalError.",
        further=_MENDED_IN_082,
    ),
    _entry(
        "kl-div-mean",
        ("0.3.0", "0.3.1"),
        "ops.kl_div.LigerKLDivLossFunction",
        "losses.py::kl_div_with_mean",
        (f"{_ISSUE}259", f"{_PULL}262"),
        Fault.WRONG,
        'reduction="mean" divides by the rows alone.',
    ),
    _entry(
        "kl-div-gradient",
        ("0.3.0", "0.3.1"),
        "ops.kl_div.LigerKLDivLossFunction",
        "losses.py::kl_div_with_batchmean.backward",
        (f"{_ISSUE}259", f"{_PULL}262"),
        Fault.GRADIENT,
        "The gradient is written over the input, which the caller still has.",
    ),
    _entry(
        "kl-div-zero-target",
        ("0.3.0", "0.3.1"),
        "ops.kl_div.LigerKLDivLossFunction",
        "losses.py::kl_div_with_zeros",
        (f"{_ISSUE}259", f"{_PULL}262"),
        Fault.NONFINITE,
        "A target of 0 gives NaN, for 0 times log 0.",
    ),
)
