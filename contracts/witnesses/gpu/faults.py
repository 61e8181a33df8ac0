"""Faults that a GPU shows, one for each class and module; matching correct kernels.

Minimal cases are stated for float32: arguments are aligned to 16 bytes, so that a page
follows the last of every fourth element, and what comes less far is not seen.
"""

from dataclasses import replace
from typing import Final

from kfuzz.contracts.witnesses.roster import everywhere
from kfuzz.contracts.witnesses.witness import LONG_ROWS, SQUARE, Shape, Witness

ELEMENTWISE: Final = "gpu.elementwise_cpp"
SUMS: Final = "gpu.sums_cpp"
FLUSH: Final = "four elements, so that a page follows; any values"
THREE: Final = "three elements, any values"
ORDER: Final = "a few hundred terms whose rounded sum depends on their order"


def on_gpu(
    kernel: str,
    module: str,
    contract: str = "",
    most: tuple[int, int] = (0, 0),
    minimal: str = "",
    *,
    shape: Shape = SQUARE,
) -> Witness:
    """Return a witness that only a GPU runs; arguments as of `Witness`."""
    return Witness(
        kernel, module, contract, (shape,), "float32", *most, minimal, ("cuda",)
    )


def known(kernel: str, elements: int | None = None, minimal: str = "") -> Witness:
    """Return a witness of the interpreter's as it is one on a GPU.

    Args:
        kernel: its name.
        elements: elements of a minimal case, where a GPU shows it on more.
        minimal: what such a case looks like.
    """
    witness = replace(everywhere()[kernel], backends=("cuda",))
    if elements is None:
        return witness
    return replace(witness, max_elements=elements, minimal=minimal)


VIOLATING: Final = (
    known("relu_reads_one_past", 4, FLUSH),
    on_gpu("cuda_relu_reads_one_past", ELEMENTWISE, "K-MEM-01", (4, 0), FLUSH),
    on_gpu("relu_reads_vector_past", "gpu.reach", "K-MEM-01", (4, 0), FLUSH),
    on_gpu(
        "relu_empty_off_tile", "gpu.reach", "K-MEM-02", (1, 0), "one element, any value"
    ),
    on_gpu(
        "cuda_sum_uninitialised_shared", SUMS, "K-MEM-02", (1, 0),
        "one element: seven warps have no column", shape=LONG_ROWS,
    ),
    on_gpu(
        "sum_atomic_bitwise", "gpu.order", "C-ORD-02", (4096, 4096), ORDER,
        shape=LONG_ROWS,
    ),
    on_gpu(
        "cuda_relu_vectors_unaligned", ELEMENTWISE, "K-LIV-01", (4, 0),
        "four elements that start at an odd one of their storage",
    ),
    on_gpu(
        "relu_on_default_stream", "gpu.order", "C-ORD-03", (1, 1),
        "one element, any value but 0",
    ),
    on_gpu("relu_asserts_falsely", "gpu.liveness", "K-LIV-01", (3, 0), THREE),
)  # fmt: skip
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
