"""Faults of kernels on a GPU, each as compiled Triton, CUDA C++ or both."""

from dataclasses import dataclass
from typing import Final

from kfuzz.contracts.witnesses.gpu.faults import (
    ELEMENTWISE,
    SUMS,
    VIOLATING,
    known,
    on_gpu,
)
from kfuzz.contracts.witnesses.witness import Witness
from kfuzz.core.budget import Scale

TRITON: Final = "Triton"
CPP: Final = "CUDA C++"
HANG: Final = "infinite loop"


@dataclass(frozen=True)
class Fault:
    """A fault in one form.

    Attributes:
        text: what is wrong, in words.
        form: how the kernel is written, `TRITON` or `CPP`.
        witness: the faulty kernel, with its minimum on a GPU.
        scale: of the search in which it shows.
        others: classes under which it may be charged as rightly, where what it
            touches decides.
    """

    text: str
    form: str
    witness: Witness
    scale: Scale = Scale.USUAL
    others: tuple[str, ...] = ()

    @property
    def contracts(self) -> frozenset[str]:
        """The classes under which it may be found."""
        return frozenset((self.witness.contract, *self.others))


_LISTED: Final = {w.kernel: w for w in VIOLATING}

FAULTS: Final[tuple[Fault, ...]] = (
    Fault("over-read by one element", TRITON, _LISTED["relu_reads_one_past"]),
    Fault("over-read by one element", CPP, _LISTED["cuda_relu_reads_one_past"]),
    Fault("over-read by one vector", TRITON, _LISTED["relu_reads_vector_past"]),
    Fault(
        "under-read", TRITON,
        known("relu_reads_one_before"),
    ),
    Fault(
        "over-write into slack", TRITON,
        on_gpu("relu_clears_slack", "gpu.reach", "K-MEM-01"),
    ),
    Fault("over-write into a neighbour", TRITON, known("relu_tail_store_unmasked")),
    Fault(
        "expanded argument over-read", TRITON,
        on_gpu("relu_prefetches_dense", "gpu.reach", "K-MEM-01"),
    ),
    Fault("unwritten tail", TRITON, known("relu_last_tile_unwritten")),
    Fault("stale output reuse", TRITON, _LISTED["relu_empty_off_tile"]),
    Fault(
        "uninitialised shared memory", CPP,
        _LISTED["cuda_sum_uninitialised_shared"],
        others=("C-ORD-02",),
    ),
    Fault("atomics declared bitwise", TRITON, _LISTED["sum_atomic_bitwise"]),
    Fault(
        "missing barrier", CPP,
        on_gpu("cuda_sum_missing_barrier", SUMS, "C-ORD-02", shape=(16, 256)),
    ),
    Fault("misaligned vector load", TRITON, known("relu_misaligned_pairs")),
    Fault("misaligned vector load", CPP, _LISTED["cuda_relu_vectors_unaligned"]),
    Fault(
        "int32 overflow at 2^31", TRITON,
        known("relu_offsets_overflow"),
        scale=Scale.LARGE, others=("K-LIV-01", "K-MEM-02"),
    ),
    Fault(
        "block limit", CPP,
        on_gpu("cuda_relu_thread_per_column", ELEMENTWISE, "K-LIV-01"),
    ),
    Fault("one bad autotune configuration", TRITON, known("softmax_unmasked_config")),
    Fault("missing stream wait", TRITON, _LISTED["relu_on_default_stream"]),
    Fault(
        HANG, TRITON,
        on_gpu("relu_waits_forever", "gpu.liveness", "K-LIV-01"),
    ),
    Fault("device assert", TRITON, _LISTED["relu_asserts_falsely"]),
    Fault(
        "illegal address on a rare input", TRITON,
        on_gpu("relu_rare_illegal_address", "gpu.liveness", "K-LIV-01"),
    ),
)  # fmt: skip
