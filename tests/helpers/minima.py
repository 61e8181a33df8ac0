"""What a person would call the minimal case of each fault, by kernel.

On a GPU it is stated for float32: arguments are aligned to 16 bytes, so that a page
follows the last of every fourth element, and what comes less far is not seen.
"""

from typing import Final, NamedTuple


class Minimum(NamedTuple):
    """A minimal case: most of its elements, over all tensors, and what it is."""

    elements: int
    nonzero: int
    text: str


MINIMA: Final = {
    "amax_zero_identity": Minimum(3, 3, "one row, width 3, all negative"),
    "amax_nan_swallowed": Minimum(1, 1, "one element, a NaN"),
    "cross_entropy_padded_label": Minimum(
        4, 1, "one row, width 3: the label 3 lies in the padded column"
    ),
    "gelu_by_tanh": Minimum(1, 1, "one element between 0.1 and 4 of either sign"),
    "rms_norm_eps_outside": Minimum(2, 2, "one small element and its weight"),
    "matmul_half_accumulator": Minimum(
        34, 8, "1 x 17 times 17 x 1, one longer than a tile: three or four products"
    ),
    "matmul_drop_tail": Minimum(2, 2, "1 x 1 times 1 x 1"),
    "linear_relu_saturates": Minimum(
        3, 3, "one bias above 64, or one product, or both together"
    ),
    "argmax_last_of_equals": Minimum(2, 0, "two equal elements"),
    "relu_ignores_strides": Minimum(
        4, 1, "a transposed 2 x 2 with one element off the diagonal"
    ),
    "relu_misaligned_pairs": Minimum(
        2, 0, "two elements that start at an odd one of their storage"
    ),
    "relu_last_tile_unwritten": Minimum(1, 0, "one element, any value"),
    "relu_overwrites_input": Minimum(1, 1, "one negative element"),
    "relu_wrong_dtype": Minimum(1, 0, "one float32 element, any value"),
    "relu_hangs": Minimum(3, 0, "three elements, any values"),
    "relu_segfaults": Minimum(3, 0, "three elements, any values"),
    "relu_native_over_read": Minimum(
        4, 0, "a multiple of 16 bytes, so that a page can follow: four elements"
    ),
    "softmax_tail_zero": Minimum(
        3, 3, "one row, width 3: the first width that a block pads"
    ),
    "softmax_no_max": Minimum(1, 1, "one element whose exp overflows"),
    "sum_random_order": Minimum(
        8, 8, "one row, a few values whose rounded sum depends on their order"
    ),
    "softmax_unmasked_config": Minimum(1, 1, "one element: 255 lanes beside it count"),
    "leaky_relu_unrestored": Minimum(1, 1, "one negative element"),
    "log_by_exponent_bits": Minimum(1, 1, "one positive subnormal number"),
    "relu_static_buffer": Minimum(1, 0, "one element, any value"),
    "amax_stale_partials": Minimum(
        1, 0, "one element, any value: one chunk of four is made"
    ),
    "relu_clears_the_next_buffer": Minimum(1, 1, "one negative element"),
    "relu_tail_store_unmasked": Minimum(1, 0, "one element, any value"),
    "relu_reads_one_past": Minimum(1, 0, "one element, any value"),
    "relu_reads_one_before": Minimum(1, 0, "one element, any value"),
    "amax_last_chunk_wins": Minimum(
        17, 1, "one row one longer than a chunk: two different maxima"
    ),
    "relu_offsets_overflow": Minimum(3, 0, "three elements 2^30 apart, any values"),
    "sum_split_by_rows": Minimum(
        24, 6, "a few rows of a few, one sum rounding otherwise in a scan"
    ),
    "incident_precision_coercion": Minimum(
        2, 2, "1 x 1 times 1 x 1: a number that float16 rounds"
    ),
    "incident_reward_hacking": Minimum(
        34, 2, "1 x 1 times 1 x 33, one column beyond the benchmark's grid"
    ),
    "incident_silent_index": Minimum(2, 1, "a table of one element, and the index 1"),
}

ON_GPU: Final = {
    **MINIMA,
    "relu_reads_one_past": Minimum(
        4, 0, "four elements, so that a page follows; any values"
    ),
    "cuda_relu_reads_one_past": Minimum(
        4, 0, "four elements, so that a page follows; any values"
    ),
    "relu_reads_vector_past": Minimum(
        4, 0, "four elements, so that a page follows; any values"
    ),
    "relu_empty_off_tile": Minimum(1, 0, "one element, any value"),
    "cuda_sum_uninitialised_shared": Minimum(
        1, 0, "one element: seven warps have no column"
    ),
    "sum_atomic_bitwise": Minimum(
        4096, 4096, "a few hundred terms whose rounded sum depends on their order"
    ),
    "cuda_relu_vectors_unaligned": Minimum(
        4, 0, "four elements that start at an odd one of their storage"
    ),
    "relu_on_default_stream": Minimum(1, 1, "one element, any value but 0"),
    "relu_asserts_falsely": Minimum(3, 0, "three elements, any values"),
    "relu_clears_slack": Minimum(
        2, 0, "two rows of one element, and slack between them"
    ),
    "relu_prefetches_dense": Minimum(
        8, 0, "five elements in one place, or eight in four; any values"
    ),
    "cuda_sum_missing_barrier": Minimum(
        4096, 4096, "rows longer than 256, that two warps share"
    ),
    "relu_offsets_overflow": Minimum(
        8589934592, 0, "2^31 elements and some more, or three rows 2^30 apart"
    ),
    "cuda_relu_thread_per_column": Minimum(
        1025, 0, "one row of 1,025 elements, any values"
    ),
    "relu_waits_forever": Minimum(3, 0, "three elements, any values"),
    "relu_rare_illegal_address": Minimum(
        139, 0, "17 elements, or 78 or 139 in two dimensions; any values"
    ),
}
