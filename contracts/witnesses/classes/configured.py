"""Autotuned kernels."""

from collections.abc import Mapping
from typing import Any

import triton
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.elementwise import unary_kernel
from kfuzz.contracts.witnesses.rows import MAX_ROWS, as_rows, empty, restored
from kfuzz.contracts.witnesses.softmax import softmax_kernel
from kfuzz.contracts.witnesses.witness import LONG_ROWS, SQUARE, witness

SMALL, LARGE = {"ROWS": MAX_ROWS, "BLOCK": 64}, {"ROWS": 8, "BLOCK": 256}
# A block of padded lanes that count as elements of the row.
UNMASKED = {**LARGE, "TAIL_ZERO": True}


def _tuned(*configs: Mapping[str, object]) -> Any:
    """Return the kernel autotuned over configurations, each masked unless it says."""
    made = [triton.Config({"TAIL_ZERO": False, **config}) for config in configs]
    return triton.autotune(made, key=["n"])(softmax_kernel)


tuned, tuned_unmasked = _tuned(SMALL, LARGE), _tuned(UNMASKED, SMALL)


def launch(x: Tensor, dim: int, made: Any) -> Tensor:
    """Return softmax(x, dim) by an autotuned kernel."""
    rows = as_rows(x, dim)
    y = empty(rows)
    if y.numel():
        made[lambda meta: (triton.cdiv(rows.shape[0], meta["ROWS"]),)](
            rows, y, *rows.stride(), *rows.shape, SUBTRACT_MAX=True
        )
    return restored(y, x, dim)


@witness(LONG_ROWS)
@kernel(ops.softmax)
def triton_softmax_autotuned(x: Tensor, dim: int = -1) -> Tensor:
    """Conforming."""
    return launch(x, dim, tuned)


@witness(LONG_ROWS, breaks="C-CMP-02")
@kernel(ops.softmax)
def softmax_unmasked_config(x: Tensor, dim: int = -1) -> Tensor:
    """Violates C-CMP-02: one autotuned configuration counts the padded lanes."""
    return launch(x, dim, tuned_unmasked)


def _in_place(restored: list[str]) -> Any:
    """Return an elementwise kernel autotuned over blocks that restores arguments."""
    made = [triton.Config({"BLOCK": block}) for block in (64, 256)]
    return triton.autotune(made, key=["numel"], restore_value=restored)(unary_kernel)


in_place, in_place_unrestored = _in_place(["x_ptr"]), _in_place([])


def leak(x: Tensor, slope: float, made: Any) -> Tensor:
    """Scale what is negative in x, where it lies if it is contiguous."""
    y = x.contiguous()
    if y.numel():
        made[lambda meta: (triton.cdiv(y.numel(), meta["BLOCK"]),)](
            y, y, y.numel(), float(slope), 0.0, NAME="leaky_relu"
        )
    return x if y is x else x.copy_(y)


@witness(SQUARE)
@kernel(ops.leaky_relu, inplace="x")
def triton_leaky_relu_in_place(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Conforming."""
    return leak(x, negative_slope, in_place)


@witness(SQUARE, breaks="C-CMP-02")
@kernel(ops.leaky_relu, inplace="x")
def leaky_relu_unrestored(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Violates C-CMP-02: what the autotuner tries is scaled each time."""
    return leak(x, negative_slope, in_place_unrestored)
