"""State of torch that outlives a call: what a kernel changes of it is put back.

It decides how later calls compute: other kernels', and the program's that calls this
one. A kernel that needs another setting has to put back the one that it found.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Any, Final

import torch
import torch.utils._device as torch_device
from torch import Tensor

_backends: Any = torch.backends


def _flushes() -> bool:
    """Whether subnormal numbers count as 0 on the CPU; torch sets it and does not say.

    Without a dispatch: modes that watch a call see nothing of it.
    """
    least = 5e-324
    return least * 1.0 == 0.0


def _of_attribute(
    owner: Any, name: str
) -> tuple[Callable[[], Any], Callable[..., Any]]:
    return (lambda: getattr(owner, name)), (lambda value: setattr(owner, name, value))


def _attributes() -> dict[str, tuple[Callable[[], Any], Callable[..., Any]]]:
    """Return the settings that are attributes of `torch.backends` here.

    The precision of float32 is set by kind: the older settings of the whole raise once
    a kind differs.
    """
    names = [
        "cudnn.enabled", "cudnn.benchmark", "cudnn.deterministic",
        "cuda.matmul.allow_fp16_reduced_precision_reduction",
        "cuda.matmul.allow_bf16_reduced_precision_reduction", "mkldnn.enabled",
        *_BY_KIND,
    ]  # fmt: skip
    made = {}
    for name in names:
        path, _, last = name.rpartition(".")
        try:
            owner = attrgetter(path)(_backends) if path else _backends
            getattr(owner, last)
        except (AttributeError, RuntimeError):
            continue
        made[f"torch.backends.{name}"] = _of_attribute(owner, last)
    return made


_BY_KIND: Final = [
    f"{name}fp32_precision"
    for name in (
        "", "cuda.matmul.", "cudnn.conv.", "cudnn.rnn.", "mkldnn.matmul.",
        "mkldnn.conv.", "mkldnn.rnn.",
    )
]  # fmt: skip

_SETTINGS: Final[dict[str, tuple[Callable[[], Any], Callable[..., Any]]]] = {
    "the default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    # That of the innermost setting; None where there is none.
    "the default device": (
        partial(getattr, torch_device, "CURRENT_DEVICE"),
        torch.set_default_device,
    ),
    "the number of threads": (torch.get_num_threads, torch.set_num_threads),
    "grad mode": (torch.is_grad_enabled, torch._C._set_grad_enabled),
    "the use of deterministic algorithms": (
        torch.get_deterministic_debug_mode,
        torch.set_deterministic_debug_mode,
    ),
    "whether subnormals are flushed": (_flushes, torch.set_flush_denormal),
    "the precision of float32 products": (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    **_attributes(),
    **{
        f"autocast for {kind}": (
            partial(torch.is_autocast_enabled, kind),
            partial(torch.set_autocast_enabled, kind),
        )
        for kind in ("cpu", "cuda")
    },
    "anomaly detection": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    "filling of uninitialized memory": _of_attribute(
        torch.utils.deterministic, "fill_uninitialized_memory"
    ),
}


def state() -> dict[str, Any]:
    """Return what torch is set to, by the name of each setting."""
    return {name: ask() for name, (ask, _) in _SETTINGS.items()}


def restore(before: Mapping[str, Any]) -> list[str]:
    """Put back what differs now; return it in words, with both values."""
    after = {name: _SETTINGS[name][0]() for name in before}
    for name, value in before.items():  # some set others, which come later
        ask, put = _SETTINGS[name]
        if ask() != value:
            put(value)
    return [
        f"{name} ({value} before the call, {after[name]} after it)"
        for name, value in before.items()
        if after[name] != value
    ]


@contextmanager
def put_back() -> Iterator[list[str]]:
    """Put back what is changed meanwhile; give a list that then holds it in words."""
    before, left = state(), list[str]()
    try:
        yield left
    finally:
        left += restore(before)


# Replacing attributes of a module or class for a while.


# Torch's own operators that compute, called while a kernel runs.

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
