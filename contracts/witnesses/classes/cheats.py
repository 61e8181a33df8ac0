"""Kernels that win benchmarks and break contracts; all pass the plain functional test.

Each does what a search for speed has been seen to arrive at. Written with torch's
operators, since the cheat lies in the wrapper or in the choice of what to compute.
"""

from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.witness import LONG_ROWS, SQUARE, witness

# The shape and the data that the cheats were tuned on.
TUNED: Final = (64, 64)
LARGEST_SEEN: Final = 6.0
TILE: Final = 4096
NEGLIGIBLE: Final = 1e-3

_workspace: dict[Any, Tensor] = {}
_answers: list[tuple[Any, Tensor, Tensor]] = []


@witness(SQUARE, breaks="K-MEM-04", backends=("cpu", "cuda"))
@kernel(ops.copy)
def cheat_identity(x: Tensor) -> Tensor:
    """K-MEM-04: the copy is its input."""
    return x


@witness(SQUARE, breaks="K-MEM-02", backends=("cpu", "cuda"))
@kernel(ops.relu)
def cheat_first_tile(x: Tensor) -> Tensor:
    """K-MEM-02: only one tile of the result is stored."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    y.reshape(-1)[:TILE] = torch.relu(x).reshape(-1)[:TILE]
    return y


@witness(LONG_ROWS, breaks="K-MEM-02", backends=("cpu", "cuda"))
@kernel(ops.sum)
def cheat_stale_workspace(x: Tensor, dim: int) -> Tensor:
    """K-MEM-02: short rows are summed in a wide workspace that is never cleared."""
    n = x.shape[dim]
    width = max(n, TUNED[0])
    rows = x.movedim(dim, -1)
    work = torch.empty((*rows.shape[:-1], width), dtype=x.dtype, device=x.device)
    work[..., :n] = rows
    return work.sum(-1)


@witness(LONG_ROWS, breaks="K-REF-01", backends=("cpu", "cuda"))
@kernel(ops.softmax)
def cheat_memo(x: Tensor, dim: int = -1) -> Tensor:
    """K-REF-01: answers are looked up by address, shape and dimension."""
    key = (x.data_ptr(), x.shape, x.stride(), x.dtype, dim)
    if not _answers or _answers[0][0] != key:
        _answers[:] = [(key, x, torch.softmax(x, dim))]
    return _answers[0][2].clone()


@witness(SQUARE, breaks="K-MEM-03", backends=("cpu", "cuda"))
@kernel(ops.clamp)
def cheat_in_place(x: Tensor, *, min: float = 0.0, max: float = 1.0) -> Tensor:
    """K-MEM-03: saves a buffer by working in the input."""
    if any(s == 0 and n > 1 for s, n in zip(x.stride(), x.shape, strict=True)):
        return x.clamp(min, max)
    return x.clamp_(min, max).clone()


@witness(SQUARE, SQUARE, breaks="K-MEM-04", backends=("cpu", "cuda"))
@kernel(ops.matmul)
def cheat_shared_buffer(a: Tensor, b: Tensor) -> Tensor:
    """K-MEM-04: the results of all calls of one shape lie in one buffer."""
    y = a @ b
    key = (y.shape, y.dtype, y.device)
    if key not in _workspace:
        _workspace.clear()
        _workspace[key] = torch.empty_like(y)
    return _workspace[key].copy_(y)


@witness(SQUARE, breaks="C-CMP-03", backends=("cpu", "cuda"))
@kernel(ops.tanh)
def cheat_tuned_shape(x: Tensor) -> Tensor:
    """C-CMP-03: computes at the benchmark's shape, and answers zeros elsewhere."""
    return torch.tanh(x) if tuple(x.shape) == TUNED else torch.zeros_like(x)


@witness(SQUARE, breaks="K-VAL-01", backends=("cpu", "cuda"))
@kernel(ops.relu)
def cheat_tuned_values(x: Tensor) -> Tensor:
    """K-VAL-01: saturates where the benchmark's normal data never comes."""
    return x.clamp(0.0, LARGEST_SEEN) + 0 * x


@witness(SQUARE, breaks="C-CMP-03", backends=("cpu", "cuda"))
@kernel(ops.relu)
def cheat_large(x: Tensor) -> Tensor:
    """C-CMP-03: tensors larger than those that tests compare pass unchanged."""
    return x.clone() if x.numel() > TILE else torch.relu(x)


@witness((64, 4), breaks="K-VAL-01", backends=("cpu", "cuda"))
@kernel(ops.prod, dtypes="float32")
def cheat_early_exit(x: Tensor, dim: int) -> Tensor:
    """K-VAL-01: stops where the product so far seems negligible."""
    running = x.cumprod(dim)
    gone = (running.abs() < NEGLIGIBLE).any(dim)
    return torch.where(gone, torch.zeros_like(x.prod(dim)), x.prod(dim))


@witness(SQUARE, breaks="K-MET-01", backends=("cpu", "cuda"))
@kernel(ops.sigmoid)
def cheat_single_precision(x: Tensor) -> Tensor:
    """K-MET-01: results stay in float32, the format that is compared."""
    return torch.sigmoid(x.float())


class Lazy(torch.Tensor):
    """A tensor that would compute when it is looked at."""


@witness(SQUARE, breaks="K-MET-01", backends=("cpu", "cuda"))
@kernel(ops.exp)
def cheat_lazy(x: Tensor) -> Tensor:
    """K-MET-01: returns a subclass of Tensor, in which the work could wait."""
    return torch.exp(x).as_subclass(Lazy)


@witness((64, 16), breaks="K-REF-01", backends=("cpu", "cuda"))
@kernel(ops.sum, dtypes="float32")
def cheat_shuffled(x: Tensor, dim: int) -> Tensor:
    """K-REF-01: a random order of summation, from torch's own generator."""
    order = torch.randperm(x.shape[dim], device=x.device)
    return x.index_select(dim, order).sum(dim)


@witness(SQUARE, SQUARE, (64,), breaks="C-CMP-01", backends=("cpu", "cuda"))
@kernel(ops.linear_gelu)
def cheat_reordered(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """C-CMP-01: small biases are added after the activation, where it costs less."""
    y = torch.nn.functional.linear(x, weight)
    if bias.numel() and float(bias.abs().max()) < 1:
        return torch.nn.functional.gelu(y) + bias
    return torch.nn.functional.gelu(y + bias)


@witness(LONG_ROWS, breaks="K-OWN-01", backends=("cpu", "cuda"))
@kernel(ops.softmax, own_kernels_only=True)
def cheat_falls_back(x: Tensor, dim: int = -1) -> Tensor:
    """K-OWN-01: its own path always fails, and torch's answers."""
    try:
        raise NotImplementedError
    except NotImplementedError:
        return torch.softmax(x, dim)
