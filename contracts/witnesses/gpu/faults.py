"""Faults that a GPU shows, one for each class and module; matching correct kernels."""

from dataclasses import replace
from typing import Final

from kfuzz.contracts.witnesses.roster import everywhere
from kfuzz.contracts.witnesses.witness import LONG_ROWS, SQUARE, Shape, Witness

ELEMENTWISE: Final = "gpu.elementwise_cpp"
SUMS: Final = "gpu.sums_cpp"


def on_gpu(
    kernel: str, module: str, contract: str = "", *, shape: Shape = SQUARE
) -> Witness:
    """Return a witness that only a GPU runs; arguments as of `Witness`."""
    return Witness(kernel, module, contract, (shape,), "float32", ("cuda",))


def known(kernel: str) -> Witness:
    """Return a witness of the interpreter's as it is one on a GPU."""
    return replace(everywhere()[kernel], backends=("cuda",))


VIOLATING: Final = (
    known("relu_reads_one_past"),
    on_gpu("cuda_relu_reads_one_past", ELEMENTWISE, "K-MEM-01"),
    on_gpu("relu_reads_vector_past", "gpu.reach", "K-MEM-01"),
    on_gpu("relu_empty_off_tile", "gpu.reach", "K-MEM-02"),
    on_gpu("cuda_sum_uninitialised_shared", SUMS, "K-MEM-02", shape=LONG_ROWS),
    on_gpu("sum_atomic_bitwise", "gpu.order", "C-ORD-02", shape=LONG_ROWS),
    on_gpu("cuda_relu_vectors_unaligned", ELEMENTWISE, "K-LIV-01"),
    on_gpu("relu_on_default_stream", "gpu.order", "C-ORD-03"),
    on_gpu("relu_asserts_falsely", "gpu.liveness", "K-LIV-01"),
)
"""One for each class and module: others differ in what is wrong, not in what sees it.

Left out are what only a search for large cases shows, what is a witness on the GPU by
itself, and hangs, of which there is one elsewhere.
"""

CONFORMING: Final = tuple(
    on_gpu(kernel, module, shape=shape)
    for module, shape, kernels in (
        ("gpu.reach", SQUARE, "triton_relu_prefetched triton_relu_pitched"),
        (
            "gpu.liveness", SQUARE,
            "triton_relu_waited triton_relu_asserted",
        ),
        ("gpu.order", SQUARE, "triton_relu_side_stream"),
        ("gpu.order", LONG_ROWS, "triton_sum_atomic"),
        (ELEMENTWISE, SQUARE, "cuda_relu cuda_relu_vectors cuda_relu_rows"),
        (SUMS, LONG_ROWS, "cuda_sum"),
    )
    for kernel in kernels.split()
)  # fmt: skip
WITNESSES: Final = (*VIOLATING, *CONFORMING)
