"""Arithmetic of 11 bits in place of float32's 24, on float32 inputs that keep theirs.

What is narrow are intermediate results: every operator of the oracle rounds what it
gives, and sums and products of matrices are accumulated in blocks whose running sum is
rounded after each.
"""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from kfuzz.contracts.witnesses.planted.base import Base, Fault, packed, unpacked

# Veltkamp's constant: leaves 53 - 42 = 11 bits of a float64, those of float16 and TF32.
_SPLIT: Final = 2.0**42 + 1
# Friendly shapes of operators whose sums of many terms would not pass allclose.
_SHORT: Final[dict[str, tuple[tuple[int, ...], ...]]] = {
    "sum": ((16, 16),),
    "cumsum": ((16, 16),),
    "matmul": ((16, 16), (16, 16)),
    "linear": ((16, 16), (16, 16), (16,)),
}
# Operators with arithmetic, in which this class has nothing to tell apart.
_ONCE: Final = {
    "quantize_int8": "its scale is one division and its codes are whole numbers",
    "quantize_fp8": "its scale is one division and its codes are rounded once",
    "dequantize_fp8": "its data are 8-bit codes, narrower than any arithmetic",
    "dropout": "it divides once, by a number of few bits",
    **dict.fromkeys(
        (
            "int4_matmul",
            "gptq_matmul",
            "mx_matmul",
            "scaled_matmul_blocks",
            "scaled_matmul_int8",
            "scaled_matmul_fp8",
        ),
        "sums of products of codes are large: in 11 bits they miss allclose's 1e-2",
    ),
}
# Where nothing is accumulated only intermediate results of 16-bit data can be narrow.
_HALF: Final = ("batch_norm",)
# Terms that one block adds exactly before the running sum is rounded.
BLOCK: Final = 4
_aten = torch.ops.aten


def rounded(x: Any) -> Any:
    """Return float64 values of 11 significant bits; anything else as it is."""
    if not (isinstance(x, Tensor) and x.dtype is torch.float64):
        return x
    scaled = x * _SPLIT
    short = scaled - (scaled - x)
    return torch.where(torch.isfinite(short), short, x)


def _accumulated(parts: list[Tensor]) -> Tensor:
    total: Tensor = rounded(parts[0])
    for part in parts[1:]:
        total = rounded(total + part)
    return total


def _sum(x: Tensor, dim: Any = None, keepdim: bool = False, **_: Any) -> Tensor:
    axes = dim if isinstance(dim, list | tuple) else [] if dim is None else [dim]
    axes = list(axes) or list(range(x.dim()))
    kept = x
    for axis in axes:
        parts = [p.sum(axis, keepdim=True) for p in torch.split(kept, BLOCK, axis)]
        kept = _accumulated(parts)
    return kept if keepdim else kept.squeeze(axes)


def _product(a: Tensor, b: Tensor) -> Tensor:
    columns, rows = torch.split(a, BLOCK, -1), torch.split(b, BLOCK, -2)
    return _accumulated([x @ y for x, y in zip(columns, rows, strict=True)])


def _cumulative(x: Tensor, dim: int, **_: Any) -> Tensor:
    out, total = [], None
    for part in torch.split(x, 1, dim):
        total = part if total is None else rounded(total + part)
        out.append(total)
    return torch.cat(out, dim) if out else x.clone()


def _mean(x: Tensor, dim: Any = None, keepdim: bool = False, **_: Any) -> Tensor:
    total = _sum(x, dim, keepdim)
    return total / (x.numel() / max(total.numel(), 1) or 1)


_OWN: Final[dict[Any, Callable[..., Tensor]]] = {
    _aten.sum.dim_IntList: _sum,
    _aten.sum.default: _sum,
    _aten.mean.dim: _mean,
    _aten.mean.default: _mean,
    _aten.mm.default: _product,
    _aten.bmm.default: _product,
    _aten.cumsum.default: _cumulative,
}


class Narrow(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode in which float64 results are rounded to 11 bits."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call the operator, or its blocked form, and round what it gives."""
        own = _OWN.get(func)
        if own and args[0].dtype is torch.float64 and args[0].numel():
            return rounded(own(*args, **(kwargs or {})))
        if func is _aten.copy_.default or func.is_view:
            return func(*args, **(kwargs or {}))
        return tree_map(rounded, func(*args, **(kwargs or {})))


def _narrow(base: Base) -> Base | str:
    if base.operator.tolerance.structure == "exact":
        return "its results are exact or rounded once: nothing is accumulated"
    if base.operator.name in _ONCE:
        return _ONCE[base.operator.name]
    oracle = base.operator.oracle

    name = "float16" if base.operator.name in _HALF else "float32"
    dtype: torch.dtype = getattr(torch, name)

    def narrow(*tensors: Tensor, **scalars: Any) -> Any:
        wide = [x.double() if x.is_floating_point() else x for x in tensors]
        with Narrow():  # type: ignore[no-untyped-call]
            outputs, several = unpacked(oracle(*wide, **scalars))
        stored = [y.to(dtype) if y.is_floating_point() else y for y in outputs]
        return packed(stored, several)

    made = base.by_reference()
    shapes = _SHORT.get(base.operator.name, made.shapes)
    return made.having(narrow, claims={"dtypes": name}, shapes=shapes, dtype=name)


FAULTS: Final = (
    # Accumulates and keeps intermediate results in 11 bits.
    Fault("narrow", "C-PRC-01", _narrow),
)
