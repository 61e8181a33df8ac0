"""What is kept of Triton's interpreter's lookups, and patches that are made again."""

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError

from kfuzz.execution.interpreter.watch import watch

LOOKED_THROUGH = (tl, tl.core, tl.math, tl.tensor, tl.core.tensor_descriptor_base)


@triton.jit
def largest(x, y):
    return tl.maximum(x, y)


@triton.jit
def of_chunks(x, out, n, CHUNK: tl.constexpr):
    best = tl.full((CHUNK,), float("-inf"), tl.float32)
    total = 0.0
    for start in range(0, n, CHUNK):
        i = start + tl.arange(0, CHUNK)
        chunk = tl.load(x + i, mask=i < n, other=0.0)
        best = largest(best, chunk)
        total += tl.sum(chunk)
    tl.store(out, tl.max(best) + total)


@triton.jit
def refuses(x, out):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, 4))))
    tl.static_assert(False)


def called() -> float:
    x, out = torch.arange(10, dtype=torch.float32), torch.zeros(1)
    of_chunks[(2,)](x, out, 10, CHUNK=4)
    return out.item()


def builtins() -> list[dict[str, bool]]:
    """Return what triton.language has, and what of it is as it is imported."""
    is_builtin = tl.core.is_builtin
    return [{n: is_builtin(f) for n, f in vars(o).items()} for o in LOOKED_THROUGH]


def test_functions_that_call_others_give_what_they_give_without() -> None:
    assert called() == 9 + 45
    left = builtins()
    with watch():
        assert [called(), called()] == [9 + 45] * 2
    assert builtins() == left
    assert called() == 9 + 45


def test_a_launch_that_raises_leaves_nothing_behind() -> None:
    called()
    left = builtins()
    with watch():
        for _ in range(2):
            with pytest.raises(InterpreterError):
                refuses[(1,)](torch.ones(4), torch.zeros(1))
        assert called() == 9 + 45
    assert builtins() == left
