"""Torch's operators that select by indices, add by them, or put in order."""

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from kfuzz.contracts import operators as ops
from kfuzz.contracts.platform.table import (
    Claim,
    implements,
    namesakes,
    narrowing,
    stored,
)


@implements(ops.embedding)
def torch_embedding(weight: Tensor, indices: Tensor) -> Tensor:
    """Look rows up with `torch.nn.functional.embedding`."""
    return functional.embedding(indices, weight)


@implements(ops.gather)
def torch_gather(x: Tensor, index: Tensor) -> Tensor:
    """Gather along the last dimension with `torch.gather`."""
    return torch.gather(x, -1, index)


@implements(ops.gather)
def torch_take_along_dim(x: Tensor, index: Tensor) -> Tensor:
    """Gather along the last dimension with `torch.take_along_dim`."""
    return torch.take_along_dim(x, index, -1)


@implements(ops.index_select)
def torch_index_select(x: Tensor, index: Tensor) -> Tensor:
    """Select rows with `torch.index_select`."""
    return torch.index_select(x, 0, index)


ANY_ORDER: Final = Claim(
    "determinism", "none",
    "docs/source/notes/randomness.rst and torch.use_deterministic_algorithms: atomic "
    "additions in any order",
    device="cuda",
)  # fmt: skip


# On the CPU 16-bit sums are kept in float32 (aten/src/ATen/native/cpu/
# ScatterGatherKernel.cpp: create_acc_buffer).
@narrowing(
    ops.scatter_add,
    ANY_ORDER,
    accumulator="atomic({dtype})",
    source="aten/src/ATen/native/cuda/ScatterGatherKernel.cu (ReduceAdd): "
    "fastAtomicAdd on elements of the data's format",
    device="cuda",
)
def torch_scatter_add(x: Tensor, index: Tensor, src: Tensor) -> Tensor:
    """Add along the last dimension with `torch.scatter_add`."""
    return torch.scatter_add(x, -1, index, src)


@narrowing(
    ops.index_add,
    ANY_ORDER,
    stored(
"measured on torch 2.13: on the CPU each row that is added is stored in the "
        "data's format; so are products with alpha in aten/src/ATen/native/cuda/"
        "Indexing.cu",
    ),
    accumulator="atomic({dtype})",
    source="aten/src/ATen/native/cuda/Indexing.cu (index_add_cuda_impl): "
    "fastAtomicAdd on elements of the data's format",
    device="cuda",
)  # fmt: skip
def torch_index_add(
    x: Tensor, index: Tensor, src: Tensor, *, alpha: float = 1.0
) -> Tensor:
    """Add rows with `torch.index_add`."""
    return torch.index_add(x, 0, index, src, alpha=alpha)


namesakes("topk sort", torch)


@implements(ops.sort, Claim("ties", "first", "torch.sort: stable=True keeps the order"))
def torch_sort_stable(
    x: Tensor, *, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    """Sort with `torch.sort`, equal elements in the order they had."""
    found = torch.sort(x, dim=dim, descending=descending, stable=True)
    return found.values, found.indices
