"""The faults that searches are compared on, and the correct kernel beside each."""

from dataclasses import dataclass
from typing import Final

from kfuzz.contracts.witnesses.roster import Entry, roster


@dataclass(frozen=True)
class Fault:
    """A kernel with a planted fault.

    Attributes:
        mode: what kind of fault it is.
        kernel: name of the witness.
        twin: name of a correct kernel of the same operator.
    """

    mode: str
    kernel: str
    twin: str


FAULTS: Final = (
    Fault("tail mask", "softmax_tail_zero", "triton_softmax"),
    Fault("dropped tail", "matmul_drop_tail", "triton_matmul"),
    Fault("reduction identity", "amax_zero_identity", "triton_amax"),
    Fault("ties", "argmax_last_of_equals", "triton_argmax"),
    Fault("narrow accumulator", "matmul_half_accumulator", "triton_matmul"),
    Fault("coarse formula", "gelu_by_tanh", "triton_gelu"),
    Fault("misplaced eps", "rms_norm_eps_outside", "triton_rms_norm"),
    Fault("cancellation", "unstable_in_layer_norm", "torch_layer_norm"),
    Fault("overflow", "softmax_no_max", "triton_softmax"),
    Fault("saturation", "linear_relu_saturates", "triton_linear_relu"),
    Fault("early exit", "cheat_early_exit", "torch_prod"),
    Fault("NaN swallowed", "amax_nan_swallowed", "triton_amax"),
    Fault("subnormal numbers", "log_by_exponent_bits", "triton_log"),
    Fault("one shape", "incident_reward_hacking", "triton_matmul"),
    Fault("tuned to values", "cheat_tuned_values", "torch_relu"),
    Fault("ignored stride", "relu_ignores_strides", "triton_relu"),
    Fault("int32 offset", "relu_offsets_overflow", "triton_relu"),
    Fault("index off by one", "cross_entropy_padded_label", "triton_cross_entropy"),
    Fault("index wraps", "wraps_index_in_embedding", "torch_embedding"),
    Fault("read outside", "relu_reads_one_past", "triton_relu"),
    Fault("read outside", "relu_native_over_read", "torch_relu"),
    Fault("write outside", "relu_tail_store_unmasked", "triton_relu"),
    Fault("unwritten result", "relu_last_tile_unwritten", "triton_relu"),
    Fault("stale memory", "amax_stale_partials", "triton_amax"),
    Fault("result is a buffer", "relu_static_buffer", "triton_relu"),
    Fault("result is the input", "cheat_identity", "torch_copy"),
    Fault("memo by address", "memo_in_relu", "torch_relu"),
    Fault("input overwritten", "relu_overwrites_input", "triton_relu"),
    Fault("wrong dtype", "relu_wrong_dtype", "triton_relu"),
    Fault("order of programs", "amax_last_chunk_wins", "triton_amax"),
    Fault("random order", "sum_random_order", "triton_sum"),
    Fault("crash", "relu_segfaults", "triton_relu"),
)


def entries(device: str) -> dict[str, Entry]:
    """Return where to find every witness of a device, by its name.

    Args:
        device: "cpu", where Triton kernels are interpreted, or "cuda".
    """
    return {e.witness.kernel: e for e in roster(device)}


def faults(device: str) -> list[Fault]:
    """Return the faults that show on a device and have a correct kernel there."""
    known = entries(device)
    return [f for f in FAULTS if f.kernel in known and f.twin in known]
