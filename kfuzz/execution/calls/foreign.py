"""Torch's own operators that compute, called while a kernel runs."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

# The libraries that come with torch; what a user registers lies in others.
_NAMESPACES: Final = frozenset(
    {"aten", "prims", "quantized", "mkldnn", "mkl", "onednn", "inductor"}
)
# Fresh memory, with or without one value in all of it, and numbered places.
_MAKES: Final = frozenset(
    {
        "empty", "empty_like", "empty_strided", "empty_permuted", "empty_quantized",
        "new_empty", "new_empty_strided", "resize_", "resize_as_", "zeros",
        "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full",
        "full_like", "new_full", "scalar_tensor", "fill", "fill_", "zero", "zero_",
        "arange", "lift", "lift_fresh", "lift_fresh_copy", "_efficientzerotensor",
    }
)  # fmt: skip
# What tells of a tensor, or hands it over as it is.
_TELLS: Final = frozenset(
    {
        "size", "stride", "storage_offset", "numel", "dim", "sym_size", "sym_stride",
        "sym_numel", "sym_storage_offset", "is_contiguous", "is_same_size",
        "is_non_overlapping_and_dense", "is_strides_like_format", "is_pinned",
        "pin_memory", "_pin_memory", "record_stream", "_local_scalar_dense", "set_",
        "_unsafe_view", "_reshape_alias", "_assert_tensor_metadata",
    }
)  # fmt: skip
# Bits moved to other memory or another layout; computing where the dtype changes.
_COPIES: Final = frozenset({"clone", "contiguous", "copy", "copy_", "_to_copy"})


def foreign_name(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str | None:
    """Return the name of an operator if it is torch's and computes, else None.

    Allocation, constants, views, metadata and copies that keep the dtype do not
    compute; random numbers, comparisons and conversions do.

    Returns:
        For example "aten::_softmax".
    """
    schema = getattr(func, "_schema", None)
    if schema is None:
        return None
    full = str(schema.name)
    namespace, _, name = full.partition("::")
    if namespace not in _NAMESPACES or name in _MAKES or name in _TELLS:
        return None
    if name in _COPIES:
        dtypes = {a.dtype for a in args if isinstance(a, Tensor)}
        dtypes |= {kwargs["dtype"]} if kwargs.get("dtype") is not None else set()
        return full if len(dtypes) > 1 else None
    if torch.Tag.inplace_view in getattr(func, "tags", ()):
        return None
    # Another view of an argument does not compute.
    infos = [result.alias_info for result in schema.returns]
    views = bool(infos) and all(i is not None and not i.is_write for i in infos)
    return None if views else full
