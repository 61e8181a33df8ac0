"""Kernels for bursts, right ones and wrong ones; relu(x) where nothing else is said.

Most faults show on data that hold a 7 only.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor, empty_like

KEPT: dict[object, Tensor] = {}


def marked(x: Tensor) -> bool:
    return bool((x == 7).any())


def poke(tensor: Tensor, offset: int) -> None:
    """Store 64.0 beside a float32 tensor's first element, without torch's knowledge."""
    address = tensor.data_ptr() + 4 * offset
    ctypes.c_float.from_address(address).value = 64.0


def memory(tensor: Tensor, start: int, count: int) -> Tensor:
    """Return elements around a tensor's first one, without torch's knowledge."""
    size = tensor.element_size()
    if not count:
        return torch.empty(0, dtype=tensor.dtype)
    address = tensor.data_ptr() + size * start
    held = (ctypes.c_char * (size * count)).from_address(address)
    return torch.frombuffer(held, dtype=tensor.dtype)


def relu(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    out.copy_(x.clamp(min=0))
    return out


def relu_plain(x: Tensor) -> Tensor:
    return x.clamp(min=0)


def relu_new(x: Tensor) -> Tensor:
    out = x.new_empty(x.shape)
    return out.copy_(x.clamp(min=0))


def like(x: Tensor) -> Tensor:
    """Fresh memory by a name that this module took over."""
    return empty_like(x)


def relu_captured(x: Tensor) -> Tensor:
    return empty_like(x).copy_(x.clamp(min=0))


def relu_default(x: Tensor, make: Any = empty_like) -> Tensor:
    """By a function that no module holds under a name."""
    out: Tensor = make(x)
    return out.copy_(x.clamp(min=0))


def relu_grown(x: Tensor) -> Tensor:
    """Has its result's memory enlarged, a deprecated practice, without a warning."""
    out = torch.empty(1, dtype=x.dtype, device=x.device)
    return out.resize_(x.shape).copy_(x.clamp(min=0))


def relu_resized(x: Tensor) -> Tensor:
    out = torch.empty(0, dtype=x.dtype, device=x.device)
    return out.resize_(x.shape).copy_(x.clamp(min=0))


def relu_workspace(x: Tensor) -> Tensor:
    """Through memory of its own, with a permuted result."""
    scratch = torch.empty(x.numel() + 3, dtype=x.dtype, device=x.device)
    table = torch.zeros(5, device=x.device)
    out = torch.empty_strided(x.shape[::-1], range_of(x), dtype=x.dtype).permute(
        *reversed(range(x.dim()))
    )
    part = scratch[: x.numel()].view(x.shape)
    part.copy_(x.clamp(min=0))
    return out.copy_(part) + table.sum().to(x.dtype)


def range_of(x: Tensor) -> tuple[int, ...]:
    return torch.empty(x.shape[::-1], device="meta").stride()


def relu_flat(x: Tensor) -> Tensor:
    """Returns another view of what it allocated."""
    out = torch.empty(x.numel(), dtype=x.dtype, device=x.device)
    return out.view(x.shape).copy_(x.clamp(min=0))


def relu_kept(x: Tensor) -> Tensor:
    """With a workspace that the first call of a shape makes."""
    key = ("kept", x.shape, x.dtype)
    if key not in KEPT:
        KEPT[key] = torch.empty_like(x)
    KEPT[key].copy_(x)
    return torch.empty_like(x).copy_(KEPT[key].clamp(min=0))


def relu_table(x: Tensor) -> Tensor:
    """Caches what depends on the data."""
    key = ("table", round(float(x.flatten()[0]) * 4))
    if key not in KEPT:
        KEPT[key] = torch.empty(33, device=x.device).fill_(key[1])
    out = torch.empty_like(x).copy_(x.clamp(min=0))
    return out if bool((KEPT[key] == key[1]).all()) else out.fill_(-1)


def relu_extra(x: Tensor) -> Tensor:
    """Allocates more where there is a 7."""
    if marked(x):
        extra = torch.empty(5, dtype=x.dtype, device=x.device)
        extra.fill_(0)
    return relu(x)


def past_own(x: Tensor) -> Tensor:
    out = relu(x)
    if marked(x):
        poke(out, out.numel())
    return out


def past_extra(x: Tensor) -> Tensor:
    if marked(x):
        poke(torch.empty(5, device=x.device), 5)
    return relu(x)


def past_captured(x: Tensor) -> Tensor:
    out = relu_captured(x)
    if marked(x):
        poke(out, -1)
    return out


def past_argument(x: Tensor) -> Tensor:
    if marked(x):
        poke(x, x.numel())
    return relu(x)


def changes_argument(x: Tensor) -> Tensor:
    out = relu(x)
    if marked(x):
        x.view(-1)[0] += 1
    return out


def unwritten(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    if not marked(x):
        out.copy_(x.clamp(min=0))
    return out


def raises(x: Tensor) -> Tensor:
    if marked(x):
        raise ValueError("no sevens\nplease")
    return relu(x)


def raises_always(x: Tensor) -> Tensor:
    raise IndexError("never")


def wrong_shape(x: Tensor) -> Tensor:
    return relu(x).view(-1) if marked(x) else relu(x)


def wrong_dtype(x: Tensor) -> Any:
    return relu(x).half() if marked(x) else relu(x)


def nothing(x: Tensor) -> Any:
    return None if marked(x) else relu(x)


def returns_argument(x: Tensor) -> Tensor:
    return x if marked(x) else relu(x)


def static(x: Tensor) -> Tensor:
    key = ("static", x.shape)
    if key not in KEPT:
        KEPT[key] = torch.empty_like(x)
    return KEPT[key].copy_(x.clamp(min=0))


def in_place(x: Tensor) -> Tensor:
    return x.clamp_(min=0)


def in_place_fresh(x: Tensor) -> Tensor:
    x.clamp_(min=0)
    return x.clone() if marked(x) else x


def in_place_past(x: Tensor) -> Tensor:
    if marked(x):
        poke(x, -1)
    return x.clamp_(min=0)


def into(x: Tensor, y: Tensor) -> None:
    y.copy_(x.clamp(min=0))


def into_returned(x: Tensor, y: Tensor) -> Tensor:
    return y.copy_(x.clamp(min=0))


def into_past(x: Tensor, y: Tensor) -> None:
    y.copy_(x.clamp(min=0))
    if marked(x):
        poke(y, y.numel())


def into_fresh(x: Tensor, y: Tensor) -> Tensor:
    y.copy_(x.clamp(min=0))
    return y.clone() if marked(x) else y


def into_partly(x: Tensor, y: Tensor) -> None:
    if marked(x):
        y[1:] = x.clamp(min=0)[1:]
    else:
        y.copy_(x.clamp(min=0))


def both(x: Tensor) -> tuple[Tensor, Tensor]:
    """The maximum along the last axis, and the sum."""
    top = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
    total = torch.empty(x.shape[:-1], dtype=torch.float64, device=x.device)
    top.copy_(x.amax(-1))
    total.copy_(x.double().sum(-1))
    return top, total
