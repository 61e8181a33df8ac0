"""Faults of kernels on a GPU, each as compiled Triton, CUDA C++ or both; their twins.

Minimal cases are stated for float32: arguments are aligned to 16 bytes, so that a page
follows the last of every fourth element, and what comes less far is not seen.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from kfuzz.contracts.witnesses.roster import everywhere
from kfuzz.contracts.witnesses.witness import Witness
from kfuzz.core.budget import Scale

TRITON: Final = "Triton"
CPP: Final = "CUDA C++"
HANG: Final = "infinite loop"

_SQUARE: Final = ((64, 64),)
_ROWS: Final = ((16, 1024),)
_SHORT_ROWS: Final = ((16, 256),)
_ELEMENTWISE: Final = "gpu.elementwise_cpp"
_SUMS: Final = "gpu.sums_cpp"


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


def _fault(
    text: str,
    form: str,
    kernel: str,
    module: str,
    contract: str,
    most: tuple[int, int],
    minimal: str,
    *,
    shapes: tuple[tuple[int, ...], ...] = _SQUARE,
    scale: Scale = Scale.USUAL,
    others: tuple[str, ...] = (),
) -> Fault:
    """Return a fault of a kernel that only a GPU runs.

    Args:
        text: see `Fault`.
        form: likewise.
        kernel: its name.
        module: its module below `kfuzz.contracts.witnesses`.
        contract: class under which it is falsified.
        most: elements and non-zero elements of a minimal case, at most.
        minimal: what such a case looks like.
        shapes: friendly shape of each argument.
        scale: see `Fault`.
        others: likewise.
    """
    elements, nonzero = most
    witness = Witness(
        kernel, module, contract, shapes, max_elements=elements, max_nonzero=nonzero,
        minimal=minimal, backends=("cuda",),
    )  # fmt: skip
    return Fault(text, form, witness, scale, others)


def _known(
    text: str,
    kernel: str,
    elements: int | None = None,
    minimal: str = "",
    *,
    scale: Scale = Scale.USUAL,
    others: tuple[str, ...] = (),
) -> Fault:
    """Return a fault of a Triton kernel that is a witness in the interpreter too.

    Args:
        text: see `Fault`.
        kernel: its name.
        elements: elements of a minimal case, where a GPU shows it on more.
        minimal: what such a case looks like.
        scale: see `Fault`.
        others: likewise.
    """
    witness = replace(everywhere()[kernel], backends=("cuda",))
    if elements is not None:
        witness = replace(witness, max_elements=elements, minimal=minimal)
    return Fault(text, TRITON, witness, scale, others)


_FLUSH: Final = "four elements, so that a page follows; any values"
_THREE: Final = "three elements, any values"
# Of two dimensions of which neither divides the smallest number a larger one is left.
_SEVENTEEN: Final = "17 elements, or 78 or 139 in two dimensions; any values"
_ORDER: Final = "a few hundred terms whose rounded sum depends on their order"

FAULTS: Final[tuple[Fault, ...]] = (
    _known("over-read by one element", "relu_reads_one_past", 4, _FLUSH),
    _fault(
        "over-read by one element", CPP, "cuda_relu_reads_one_past", _ELEMENTWISE,
        "K-MEM-01", (4, 0), _FLUSH,
    ),
    _fault(
        "over-read by one vector", TRITON, "relu_reads_vector_past", "gpu.reach",
        "K-MEM-01", (4, 0), _FLUSH,
    ),
    _fault(
        "over-read by one vector", CPP, "cuda_relu_reads_vector_past", _ELEMENTWISE,
        "K-MEM-01", (4, 0), _FLUSH,
    ),
    _known("under-read", "relu_reads_one_before", 1, "one element, any value"),
    _fault(
        "under-read", CPP, "cuda_relu_reads_one_before", _ELEMENTWISE,
        "K-MEM-01", (1, 0), "one element, any value",
    ),
    _fault(
        "over-write into slack", TRITON, "relu_clears_slack", "gpu.reach",
        "K-MEM-01", (2, 0), "two rows of one element, and slack between them",
    ),
    _known("over-write into a neighbour", "relu_tail_store_unmasked"),
    _fault(
        "over-write into a neighbour", CPP, "cuda_relu_writes_one_past", _ELEMENTWISE,
        "K-MEM-01", (4, 0), "one element, any value; four where a page follows",
    ),
    _fault(
        "expanded argument over-read", TRITON, "relu_prefetches_dense", "gpu.reach",
        "K-MEM-01", (8, 0), "five elements in one place, or eight in four; any values",
    ),
    _known("unwritten tail", "relu_last_tile_unwritten"),
    _fault(
        "unwritten tail", CPP, "cuda_relu_last_block_unwritten", _ELEMENTWISE,
        "K-MEM-02", (1, 0), "one element, any value",
    ),
    _fault(
        "stale output reuse", TRITON, "relu_empty_off_tile", "gpu.reach",
        "K-MEM-02", (1, 0), "one element, any value",
    ),
    _fault(
        "uninitialised shared memory", CPP, "cuda_sum_uninitialised_shared", _SUMS,
        "K-MEM-02", (1, 0), "one element: seven warps have no column", shapes=_ROWS,
        others=("C-ORD-02",),  # what lies there may change from call to call
    ),
    _fault(
        "atomics declared bitwise", TRITON, "sum_atomic_bitwise", "gpu.order",
        "C-ORD-02", (4096, 4096), _ORDER, shapes=_ROWS,
    ),
    _fault(
        "atomics declared bitwise", CPP, "cuda_sum_atomic_bitwise", _SUMS,
        "C-ORD-02", (4096, 4096), _ORDER, shapes=_ROWS,
    ),
    _fault(
        "missing barrier", CPP, "cuda_sum_missing_barrier", _SUMS,
        "C-ORD-02", (4096, 4096), "rows longer than 256, that two warps share",
        shapes=_SHORT_ROWS,
    ),
    _known("misaligned vector load", "relu_misaligned_pairs"),
    _fault(
        "misaligned vector load", CPP, "cuda_relu_vectors_unaligned", _ELEMENTWISE,
        "K-LIV-01", (4, 0), "four elements that start at an odd one of their storage",
    ),
    # What lies where a wrapped offset leads: a page, other memory, or nothing.
    _known(
        "int32 overflow at 2^31", "relu_offsets_overflow", 1 << 33,
        "2^31 elements and some more, or three rows 2^30 apart",
        scale=Scale.LARGE, others=("K-LIV-01", "K-MEM-02"),
    ),
    _fault(
        "int32 overflow at 2^31", CPP, "cuda_relu_int_offsets", _ELEMENTWISE,
        "K-MEM-01", (1 << 33, 1 << 33), "2^31 elements and some more",
        scale=Scale.LARGE, others=("K-LIV-01", "K-MEM-02"),
    ),
    _fault(
        "grid limit", TRITON, "relu_rows_in_y", "gpu.liveness",
        "K-LIV-01", (1 << 33, 1 << 33), "65,536 rows", scale=Scale.LARGE,
    ),
    _fault(
        "grid limit", CPP, "cuda_relu_rows_in_y", _ELEMENTWISE,
        "K-LIV-01", (1 << 33, 1 << 33), "65,536 rows", scale=Scale.LARGE,
    ),
    _fault(
        "block limit", CPP, "cuda_relu_thread_per_column", _ELEMENTWISE,
        "K-LIV-01", (1025, 0), "one row of 1,025 elements, any values",
    ),
    _known("one bad autotune configuration", "softmax_unmasked_config"),
    _known("one bad configuration of its own", "softmax_unmasked_block"),
    _fault(
        "missing stream wait", TRITON, "relu_on_default_stream", "gpu.order",
        "C-ORD-03", (1, 1), "one element, any value but 0",
    ),
    _fault(
        "missing stream wait", CPP, "cuda_relu_on_default_stream", _ELEMENTWISE,
        "C-ORD-03", (1, 1), "one element, any value but 0",
    ),
    _fault(
        HANG, TRITON, "relu_waits_forever", "gpu.liveness",
        "K-LIV-01", (3, 0), _THREE,
    ),
    _fault(
        HANG, CPP, "cuda_relu_stalls", _ELEMENTWISE,
        "K-LIV-01", (3, 0), _THREE,
    ),
    _fault(
        "device assert", TRITON, "relu_asserts_falsely", "gpu.liveness",
        "K-LIV-01", (3, 0), _THREE,
    ),
    _fault(
        "device assert", CPP, "cuda_relu_asserts", _ELEMENTWISE,
        "K-LIV-01", (3, 0), _THREE,
    ),
    _fault(
        "illegal address on a rare input", TRITON, "relu_rare_illegal_address",
        "gpu.liveness", "K-LIV-01", (139, 0), _SEVENTEEN,
    ),
    _fault(
        "illegal address on a rare input", CPP, "cuda_relu_rare_illegal_address",
        _ELEMENTWISE, "K-LIV-01", (139, 0), _SEVENTEEN,
    ),
)  # fmt: skip

_TWINS: Final = (
    ("gpu.reach", _SQUARE, ("triton_relu_prefetched", "triton_relu_pitched")),
    (
        "gpu.liveness", _SQUARE,
        ("triton_relu_waited", "triton_relu_asserted", "triton_relu_rows_in_x"),
    ),
    ("gpu.order", _SQUARE, ("triton_relu_side_stream",)),
    ("gpu.order", _ROWS, ("triton_sum_atomic",)),
    (
        _ELEMENTWISE, _SQUARE,
        ("cuda_relu", "cuda_relu_vectors", "cuda_relu_rows", "cuda_relu_turned"),
    ),
    (_SUMS, _ROWS, ("cuda_sum", "cuda_sum_atomic")),
)  # fmt: skip
TWINS: Final[tuple[Witness, ...]] = tuple(
    Witness(kernel, module, "", shapes, backends=("cuda",))
    for module, shapes, kernels in _TWINS
    for kernel in kernels
)


def _calibrating() -> Iterator[Witness]:
    """Yield what calibration searches: a witness of each class and module.

    The others differ in what is wrong, not in what must see it. Left out is what only
    a search for large cases shows, what is a witness on the GPU by itself, and hangs,
    of which there is one elsewhere.
    """
    seen: set[tuple[str, str]] = set()
    for fault in FAULTS:
        witness = fault.witness
        known = everywhere().get(witness.kernel)
        place = witness.contract, witness.module
        if (
            fault.scale is Scale.USUAL
            and fault.text != HANG
            and (known is None or "cuda" not in known.backends)
            and place not in seen
        ):
            seen.add(place)
            yield witness
    yield from TWINS


WITNESSES: Final[tuple[Witness, ...]] = tuple(_calibrating())
