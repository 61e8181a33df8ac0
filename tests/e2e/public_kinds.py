"""Ten kinds of faults that users of kernels report, each beside its repair.

`faulty_NAME` has one fault, `fixed_NAME` none; `twice` has two that are not one.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops

SIZES = "N >= 1"


def both(operator: Any, make: Callable[[bool], Any], **claims: Any) -> None:
    """Bind what is made with the fault and without it; named after the caller's."""
    name = make.__name__
    for prefix, wrong in (("faulty", True), ("fixed", False)):
        bound = kfuzz.kernel(operator, name=f"{prefix}_{name}", **claims)(make(wrong))
        globals()[f"{prefix}_{name}"] = bound


def address(wrong: bool) -> Any:
    """What a call returns depends on where its scratch memory lies."""

    def run(x: Tensor) -> Tensor:
        scratch = torch.empty(max(x.numel(), 1) * 8)
        odd = wrong and scratch.data_ptr() >> 7 & 1
        return torch.relu(x) + (1 if odd else 0)

    return run


def _mixed(a: Tensor, b: Tensor) -> Tensor:
    """log(exp(a) + exp(b)): of two empty states an empty one."""
    top = torch.maximum(a, b)
    shift = torch.where(top == -math.inf, torch.zeros_like(top), top)
    return shift + torch.log((a - shift).exp() + (b - shift).exp())


def empty(wrong: bool) -> Any:
    """Two empty states give NaN."""

    def run(a: Tensor, b: Tensor) -> Tensor:
        if not wrong:
            return _mixed(a.float(), b.float()).to(a.dtype)
        top, low = torch.maximum(a, b).float(), torch.minimum(a, b).float()
        return (top + torch.log1p((low - top).exp())).to(a.dtype)

    return run


def _moving(x: Tensor, *, window: int) -> Tensor:
    """The sum of each element and of those before it, `window` in all."""
    padded = torch.nn.functional.pad(x, (window - 1, 0))
    return padded.unfold(-1, window, 1).sum(-1)


def window(wrong: bool) -> Any:
    """The oldest element of a window is left out."""

    def run(x: Tensor, window: int = 3) -> Tensor:
        return _moving(x.float(), window=window - wrong).to(x.dtype)

    return run


def _turned(x: Tensor) -> Tensor:
    """Rows of four times a matrix of ones and minus ones."""
    signs = [[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]
    return x @ torch.tensor(signs, dtype=x.dtype, device=x.device)


def table(wrong: bool) -> Any:
    """One sign of a table is wrong."""

    def run(x: Tensor) -> Tensor:
        y = _turned(x.float())
        y[:, 3] -= 2 * x[:, 3].float() if wrong else 0
        return y.to(x.dtype)

    return run


def _dilated(x: Tensor, *, dilation: int) -> Tensor:
    """The greatest of each element and of the next one a dilation further."""
    after = torch.nn.functional.pad(x, (0, dilation), value=-math.inf)[:, dilation:]
    return torch.maximum(x, after)


def dilated(wrong: bool) -> Any:
    """Where a window ends outside, the last element is taken in its place."""

    def run(x: Tensor, dilation: int = 1) -> Tensor:
        if not wrong:
            return _dilated(x, dilation=dilation)
        n = x.shape[1]
        at = (torch.arange(n, device=x.device) + dilation).clamp(max=n - 1)
        return torch.maximum(x, x[:, at])

    return run


def cancelled(wrong: bool) -> Any:
    """A bias is added and taken away again."""

    def run(x: Tensor) -> Tensor:
        s = torch.sigmoid(x.float())
        return ((s + 64 - 64) if wrong else s).to(x.dtype)

    return run


@triton.jit
def _gather(x, index, y, x0, x1, i0, i1, C, K, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK).to(tl.int64)
    at = tl.load(index + row * i0 + k * i1, mask=k < K, other=0)
    v = tl.load(x + row * x0 + at * x1, mask=(k < K) & (at >= 0) & (at < C), other=0.0)
    tl.store(y + row * K + k, v, mask=k < K)


def dense(wrong: bool) -> Any:
    """An index is read as if it were dense."""

    def run(x: Tensor, index: Tensor) -> Tensor:
        y = torch.empty(index.shape, dtype=x.dtype, device=x.device)
        n, k = index.shape
        if y.numel():
            strides = (k, 1) if wrong else index.stride()
            _gather[(n,)](
                x, index, y, *x.stride(), *strides, x.shape[1], k,
                BLOCK=triton.next_power_of_2(k),
            )  # fmt: skip
        return y

    return run


def _best(x: Tensor, keep: Tensor) -> Tensor:
    """The greatest element of each row that is kept; -inf where none is."""
    return x.masked_fill(keep == 0, -math.inf).amax(-1)


def dropped(wrong: bool) -> Any:
    """What is dropped counts as 0."""

    def run(x: Tensor, keep: Tensor) -> Tensor:
        return x.masked_fill(keep == 0, 0.0 if wrong else -math.inf).amax(-1)

    return run


def _others(x: Tensor) -> Tensor:
    """The product of the other elements of each row of three."""
    a, b, c = x.unbind(-1)
    return torch.stack((b * c, a * c, a * b), -1)


def divided(wrong: bool) -> Any:
    """The product of all is divided by each element, which may be 0."""

    def run(x: Tensor) -> Tensor:
        v = x.double()
        return (v.prod(-1, keepdim=True) / v if wrong else _others(v)).to(x.dtype)

    return run


def cut(wrong: bool) -> Any:
    """Results are cut off, not rounded."""

    def run(a: Tensor, b: Tensor) -> Tensor:
        y = a.float() + b.float()
        if wrong:
            y = (y.view(torch.int32) >> 16 << 16).view(torch.float32)
        return y.to(a.dtype)

    return run


@kfuzz.kernel(ops.softmax, dims=(-1,), dtypes="float32")
def twice(x: Tensor, dim: int = -1) -> Tensor:
    """Leave out the last of an odd number of columns, and take NaN for 0."""
    n = x.shape[-1]
    y = torch.softmax(x.nan_to_num(0.0, math.inf, -math.inf), dim)
    if n > 2 and n % 2:
        y = torch.cat(
            (torch.softmax(x[..., :-1], dim), torch.zeros_like(x[..., :1])), -1
        )
    return y


def _of(name: str, function: Any, **inputs: Any) -> Any:
    shapes = inputs.pop("shape_class", SIZES)
    return kfuzz.reference(function, inputs=inputs, shape_class=shapes)


SMALL = "(-64, 64)"
both(ops.relu, address, determinism="bitwise")
both(
    _of("mixed", _mixed, a=ks.tensors("N", within="[-inf, inf)"),
        b=ks.tensors("N", within="[-inf, inf)")),
    empty,
)  # fmt: skip
both(
    _of("moving", _moving, x=ks.tensors("M N"), window=ks.scalar(3, (2, 4)),
        shape_class="M >= 1 and N >= 1"),
    window,
)  # fmt: skip
both(
    _of("turned", _turned, x=ks.tensors("M N"), shape_class="M >= 1 and N == 4"), table
)
both(
    _of("dilated", _dilated, x=ks.tensors("M N"), dilation=ks.scalar(1, (2, 3)),
        shape_class="M >= 1 and N >= 4"),
    dilated,
)  # fmt: skip
both(ops.sigmoid, cancelled)
both(ops.gather, dense, out_of_bounds="undefined")
both(
    _of("best", _best, x=ks.tensors("M N"), keep=ks.tensors("M N", within="[0, 1]"),
        shape_class="M >= 1 and N >= 1"),
    dropped,
)  # fmt: skip
both(
    _of("others", _others, x=ks.tensors("M N", within=SMALL),
        shape_class="M >= 1 and N == 3"),
    divided,
)  # fmt: skip
both(ops.add, cut, dtypes="bfloat16")
