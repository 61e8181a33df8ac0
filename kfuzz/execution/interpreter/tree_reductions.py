"""Sums and scans of bfloat16 in Triton's interpreter, associated as GPU lanes do.

A GPU adds across the lanes of a warp in a butterfly and scans by doubling, and
rounds each partial result to bfloat16. How many elements a lane holds is up to
the compiler, so the last bits of a long sum may differ from any one GPU's.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.interpreter import low_precision_rounding as n


def install(module: Any, flag: Callable[[str], None], patches: Patches) -> None:
    """Replace sum, cumsum, cumprod, and the maxima and minima of the interpreter.

    Args:
        module: `triton.runtime.interpreter`.
        flag: told why results mean nothing, where they do not.
        patches: takes what is replaced.
    """

    def checked(data: Any, what: str) -> str:
        name = n.name_of(data)
        if name not in ("", "bf16"):
            flag(f"Triton has no GPU code for {what} in {name}")
        return name

    original_sum, original_min_max = module.ReduceOps.sum, module.ReduceOps.min_max

    def total(self: Any, value: Any) -> Any:
        name = checked(value.handle.data, "sum")
        if not name:
            return original_sum(self, value)
        data = n.widen(value.handle.data)
        axis, kept = self.axis, [1] * data.ndim
        if axis is None:
            data = data.reshape(-1)
        else:
            data = np.moveaxis(data, axis, 0)
            kept = list(value.handle.data.shape)
            kept[axis] = 1
        while len(data) > 1:  # lane i adds lane i + half, as a butterfly does
            half = len(data) // 2
            pairs = n.widen(n.narrow(data[:half] + data[half : 2 * half], name))
            data = np.concatenate([pairs, data[2 * half :]])
        result = n.narrow(data[0].reshape(kept) if self.keep_dims else data[0], name)
        return self.to_tensor(result, value.dtype)

    def min_max(self: Any, value: Any, *operations: Any, **named: Any) -> Any:
        value = value[0] if isinstance(value, tuple) else value
        if checked(value.handle.data, "comparison"):
            data = n.widen(value.handle.data)
            value = SimpleNamespace(
                handle=SimpleNamespace(data=data), dtype=value.dtype
            )
        return original_min_max(self, value, *operations, **named)

    def scan(original: Any, op: Any) -> Any:
        def scanned(self: Any, value: Any) -> Any:
            name = checked(value.handle.data, "scan")
            if not name:
                return original(self, value)
            data = np.moveaxis(n.widen(value.handle.data), self.axis, 0)
            reach = 1
            while reach < len(data):  # Kogge and Stone, as the lanes of a warp
                further = n.widen(n.narrow(op(data[reach:], data[:-reach]), name))
                data = np.concatenate([data[:reach], further])
                reach *= 2
            result = n.narrow(np.moveaxis(data, 0, self.axis), name)
            return [self.to_tensor(result, value.dtype)]

        return scanned

    # `a > b ? a : b` is `b` wherever one of them is NaN, so what an argmax gives then
    # depends on which lanes the compiler combines first, in every float format.
    original_reduction = module.ReduceOps.apply_impl
    by_index = [
        getattr(module.tl.standard, f"_arg{end}_combine_tie_break_{tie}", None)
        for end in ("max", "min")
        for tie in ("left", "fast")
    ]

    def reduction(self: Any, values: Any) -> Any:
        if self.combine_fn in by_index and np.isnan(values[0].handle.data).any():
            flag("argmax and argmin of NaN depend on the order of a GPU's lanes")
        return original_reduction(self, values)

    patches.set(module.ReduceOps, "apply_impl", reduction)
    patches.set(module.ReduceOps, "sum", total)
    patches.set(module.ReduceOps, "min_max", min_max)
    for name, op in (("cumsum", np.add), ("cumprod", np.multiply)):
        patches.set(module.ScanOps, name, scan(getattr(module.ScanOps, name), op))
