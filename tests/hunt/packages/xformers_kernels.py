"""Triton kernels of xformers 0.0.35 as released.

Norms take contiguous rows; indices of an index_select are unique, and fewer than rows,
by what its documents and its check say.
"""

import torch
from xformers.ops.indexing import index_select_cat
from xformers.ops.rmsnorm import rms_norm, rms_norm_add

import kfuzz
from kfuzz.contracts import operators as ops

PACKAGE = "xformers"
VERSION = "0.0.35"
NEEDS = ()

kfuzz.kernel(
    ops.rms_norm, name="xformers_rms_norm", layouts="contiguous", shape_class="N >= 1"
)(lambda x, weight=None, eps=1e-6: rms_norm(x, weight, eps))


@kfuzz.kernel(
    ops.add_rms_norm, name="xformers_rms_norm_add", layouts="contiguous",
    shape_class="N >= 1", intermediates="output",
)  # fmt: skip
def xformers_rms_norm_add(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of a copy, to which it adds."""
    x = x.clone()
    return rms_norm_add(x, residual, weight, eps), x


kfuzz.kernel(
    ops.index_select,
    name="xformers_index_select",
    shape_class="K < V and D >= 1",
    out_of_bounds="undefined",
)(lambda x, index: index_select_cat([x], [index]).view(len(index), x.shape[1]))
