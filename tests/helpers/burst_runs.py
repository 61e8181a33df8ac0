"""Bursts on the CPU as where kernels are compiled: how they are run and read."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.execution.calls.batches import BatchRun, run_batch
from kfuzz.execution.calls.results import Invocation
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.memory.slots import Arena
from kfuzz.numerics.run import Expected
from tests.helpers import burst_kernels as kernels

MEMBERS = 9
MARKED = 5
FILL = Fill("randn")
PLAIN = TensorSpec((4, 6), ("a", "b"), "float32", fill=FILL)
LAYOUTS = {
    "contiguous": PLAIN,
    "padded": TensorSpec((4, 6), ("a", "b"), "float32", (9, 1), 3, FILL),
    "transposed": TensorSpec((4, 6), ("a", "b"), "float16", (1, 4), 0, FILL),
    "expanded": TensorSpec((4, 6), ("a", "b"), "bfloat16", (0, 1), 1, FILL),
    "stepped": TensorSpec((3, 5), ("a", "b"), "float64", (10, 2), 0, FILL),
    "scalar": TensorSpec((), (), "float32", fill=FILL),
    "empty": TensorSpec((3, 0), ("a", "b"), "float32", fill=FILL),
    "float8": TensorSpec((4, 6), ("a", "b"), "float8_e5m2", fill=FILL),
    "bool": TensorSpec((33,), ("a",), "bool", fill=FILL),
    "int64": TensorSpec((7,), ("a",), "int64", fill=FILL),
    "int8": TensorSpec((7, 3), ("a", "b"), "int8", (5, 1), 1, FILL),
}
RIGHT = [
    kernels.relu, kernels.relu_plain, kernels.relu_new, kernels.relu_captured,
    kernels.relu_resized, kernels.relu_workspace, kernels.relu_flat, kernels.relu_kept,
    kernels.relu_table, kernels.relu_extra, kernels.relu_default, kernels.relu_grown,
]  # fmt: skip


def values_of(spec: TensorSpec, members: int = MEMBERS, seed: int = 0) -> Tensor:
    """Return logical elements of all members; expanded axes repeat index 0."""
    source = torch.Generator().manual_seed(seed)
    made = torch.randn((members, *spec.shape), generator=source) * 3
    made = made.to(getattr(torch, spec.dtype))
    for axis, (n, step) in enumerate(
        zip(spec.shape, spec.element_strides, strict=True)
    ):
        if step == 0 and n > 1:
            made = made.view(torch.uint8) if made.itemsize == 1 else made
            made = made.narrow(axis + 1, 0, 1).expand(made.shape).contiguous()
    return made


def marked(*numbers: int) -> Tensor:
    """Return data in which some members hold a 7."""
    values = values_of(PLAIN)
    values[list(numbers), 1, 2] = 7
    return values


def run(
    call: Callable[..., Any],
    x: Tensor,
    spec: TensorSpec = PLAIN,
    *,
    expected: dict[str, Expected] | None = None,
    alignment: int = 16,
    around: Poison = Poison.NAN,
    arena: Arena | None = None,
    step: Callable[[], None] = lambda: None,
    seconds: float = math.inf,
    **asked: Any,
) -> BatchRun:
    """Run a burst in an arena that has had none unless one is given."""
    if expected is None:
        expected = {"y": Expected(spec.shape, getattr(torch, spec.dtype))}
    invocation = Invocation(
        call, Case({"x": spec}), expected, alignment=alignment, around=around, **asked
    )
    return run_batch(
        invocation, {"x": x}, arena=arena or Arena("cpu"), step=step, seconds=seconds
    )


def suspects(made: BatchRun, x: Tensor) -> set[int]:
    """Return which members a screen would single out against relu."""
    assert not made.unsupported
    assert not made.lost
    wrong = ~torch.isclose(made.outputs["y"], x.clamp(min=0)).flatten(1).all(1)
    return {*wrong.nonzero().flatten().tolist(), *touched(made), *made.failed}


def touched(made: BatchRun) -> list[int]:
    return made.touched.nonzero().flatten().tolist()


def same_bits(a: Tensor, b: Tensor) -> bool:
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    return torch.equal(
        a.contiguous().reshape(-1).view(torch.uint8),
        b.contiguous().reshape(-1).view(torch.uint8),
    )
