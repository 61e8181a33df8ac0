"""True bfloat16 and 8-bit arithmetic in Triton's interpreter, while a block runs.

The interpreter keeps these formats as integers: its maxima compare bit patterns,
its sums add them, its casts truncate. Here its arrays get NumPy types of the
formats (ml_dtypes), and its operations the meaning of the code that Triton
compiles for an NVIDIA GPU (see `narrow`): bfloat16 is computed in
float32 and rounded once, which is a single correct rounding for +, - and *
(24 >= 2*8 + 2 bits; Figueroa 1995). Triton compiles no arithmetic on 8-bit floats
but casts, selection, abs and dot; where a kernel asks for more, that is reported.
Sums and scans associate like a GPU's lanes do, in a tree.

What a kernel means is left to the release that compiles it: up to Triton 3.7 -x is
0 - x, up to 3.8 scans of bfloat16 run in float32.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.interpreter import low_precision_rounding as n

FORMATS: Final = frozenset({"bf16", "fp8e4nv", "fp8e5"})
_NEEDED: Final = {
    "InterpreterBuilder": (
        "binary_op", "unary_op", "cast_impl", "create_fp_to_fp", "create_fma",
        "create_clampf", "create_dot", "create_atomic_rmw",
    ),
    "ReduceOps": ("sum", "min_max", "apply_impl", "to_tensor"),
    "ScanOps": ("cumsum", "cumprod"),
    "_interpreter": ("load", "store", "atomic_cas"),
    "_ir": ("ATOMIC_OP", "ROUNDING_MODE"),
}  # fmt: skip
_MINIMA: Final = frozenset({np.minimum, np.fmin})
_EXTREMES: Final = _MINIMA | {np.maximum, np.fmax}

Flag = Callable[[str], None]


def correctable(module: Any) -> frozenset[str]:
    """Return the formats, by Triton's names, that can be made right here."""
    parts = all(
        hasattr(getattr(module, owner, None), name)
        for owner, names in _NEEDED.items()
        for name in names
    )
    return FORMATS if parts and hasattr(module, "_get_np_dtype") else frozenset()


def install(module: Any, flag: Flag, patches: Patches) -> None:
    """Make the interpreter's low precision right, until the patches are undone.

    Args:
        module: `triton.runtime.interpreter`, which must be `correctable`.
        flag: told why a kernel's results mean nothing, where they do not.
        patches: takes what is replaced.
    """
    builder = module.InterpreterBuilder
    operations = _Operations(module, flag)
    for name in (*_NEEDED["InterpreterBuilder"], "create_dot_scaled"):
        if (original := getattr(builder, name, None)) is not None:
            patches.set(builder, name, _for(getattr(operations, name), original))
    # Up to some release np.maximum stood for both; PTX drops NaN in the first pair.
    for name, op in (
        ("create_maxnumf", np.fmax), ("create_minnumf", np.fmin),
        ("create_maximumf", np.maximum), ("create_minimumf", np.minimum),
    ):  # fmt: skip
        patches.set(builder, name, _binary(op))
    # Absent up to Triton 3.8, where every scalar of a bfloat16 block needs it.
    patches.set(builder, "get_bf16", operations.get_bf16())
    patches.set(module, "_get_np_dtype", _element_types(module._get_np_dtype))
    patches.set(module, "_interpreter", _RawMemory(module._interpreter))

    tree_reductions_install(module, flag, patches)


def _for(operation: Any, original: Any) -> Any:
    return lambda builder, *operands: operation(original, builder, *operands)


def _binary(op: Any) -> Callable[[Any, Any, Any], Any]:
    return lambda builder, lhs, rhs: builder.binary_op(lhs, rhs, op)


def _signed_zeros(op: Any, left: Any, right: Any, result: Any) -> Any:
    """Return maxima and minima with PTX's signs: -0 < +0; NumPy returns either."""
    if op not in _EXTREMES:
        return result
    zeros = result == 0
    if not zeros.any():
        return result
    least = np.logical_or if op in _MINIMA else np.logical_and
    # Where one operand is NaN the other is the result, sign and all.
    first = np.signbit(np.where(np.isnan(left), right, left))
    second = np.signbit(np.where(np.isnan(right), left, right))
    negative = least(first, second)
    zero = np.where(negative, result.dtype.type(-0.0), result.dtype.type(0.0))
    return np.where(zeros, zero, result)


def _element_types(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def element_type(tt_dtype: Any) -> Any:
        name = getattr(getattr(tt_dtype, "element_ty", tt_dtype), "name", "")
        if name in n.DTYPES and not tt_dtype.is_ptr():
            return n.DTYPES[name]
        return original(tt_dtype)

    return element_type


class _RawMemory:
    """The native part, which knows NumPy's own types only."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self._bits = {d: np.dtype(f"u{d.itemsize}") for d in n.DTYPES.values()}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        bits = self._bits.get(dtype)
        if bits is None:
            return self._native.load(pointers, mask, other, dtype)
        # `other` may be of a type that the native part knows.
        bare = other.view(bits) if other.dtype == dtype else other
        return self._native.load(pointers, mask, bare, bits).view(dtype)

    def store(self, pointers: Any, values: Any, mask: Any) -> Any:
        bits = self._bits.get(values.dtype)
        bare = values if bits is None else values.view(bits)
        return self._native.store(pointers, bare, mask)

    def atomic_cas(self, pointers: Any, cmp: Any, value: Any, sem: Any) -> Any:
        found = self._native.atomic_cas(pointers, n.raw(cmp), n.raw(value), sem)
        return found.view(cmp.dtype)


class _Operations:
    """Each method stands for an operation of the builder, which it is given."""

    def __init__(self, module: Any, flag: Flag) -> None:
        self._module, self._flag = module, flag
        self._handle, self._names = module.TensorHandle, n.NAMES

    def _name(self, *handles: Any) -> str:
        """Return the format among the operands; handles may misname theirs."""
        for handle in handles:
            if name := self._names.get(handle.data.dtype):
                return str(name)
        return ""

    def _no_code(self, what: str, name: str) -> None:
        self._flag(f"Triton has no GPU code for {what} in {name}")

    def get_bf16(self) -> Any:
        return lambda _, value: self._handle(
            n.constant(value), self._module.tl.bfloat16
        )

    def binary_op(
        self, original: Any, builder: Any, lhs: Any, rhs: Any, op: Any
    ) -> Any:
        name = self._names.get(lhs.data.dtype) or self._names.get(rhs.data.dtype)
        if name is None:
            made = original(builder, lhs, rhs, op)
            if op in _EXTREMES and made.data.dtype.kind == "f":
                made.data = _signed_zeros(op, lhs.data, rhs.data, made.data)
            return made
        if name != "bf16":
            self._no_code(op.__name__, name)
        left, right = n.widen(lhs.data), n.widen(rhs.data)
        result = np.asarray(op(left, right))
        if result.dtype == np.bool_:
            return self._handle(result, self._module.tl.int1)
        result = _signed_zeros(op, left, right, result)
        return self._handle(n.narrow(result, name), lhs.dtype.scalar)

    def unary_op(self, original: Any, builder: Any, arg: Any, op: Any) -> Any:
        name = self._name(arg)
        if not name:
            return original(builder, arg, op)
        if name != "bf16" or op is not np.negative:
            self._no_code(op.__name__, name)
        if op is np.negative:  # flips one bit, of NaN too
            bits = n.raw(arg.data)
            sign = bits.dtype.type(1 << (8 * bits.itemsize - 1))
            return self._handle((bits ^ sign).view(arg.data.dtype), arg.dtype)
        result = op(n.widen(arg.data))
        return self._handle(n.narrow(result, name), arg.dtype.scalar)

    def cast_impl(self, original: Any, builder: Any, src: Any, dst_type: Any) -> Any:
        source, scalar = self._name(src), dst_type.scalar
        if scalar.name in FORMATS:
            data = n.narrow(src.data, scalar.name)
            # Only constants come here for 8 bits, and are folded if exact.
            if scalar.name != "bf16" and not np.array_equal(
                n.widen(data), n.widen(src.data), equal_nan=True
            ):
                self._no_code("an inexact constant", scalar.name)
            return self._handle(data, scalar)
        if source:
            wide = self._handle(n.widen(src.data), self._module.tl.float32)
            return original(builder, wide, dst_type)
        return original(builder, src, dst_type)

    def create_fp_to_fp(
        self, original: Any, builder: Any, src: Any, dst_type: Any, mode: Any
    ) -> Any:
        source, scalar = self._name(src), dst_type.scalar
        if mode == self._module._ir.ROUNDING_MODE.RTZ:
            single = src.data.dtype == np.float32
            if not single or scalar.name not in ("bf16", "fp16", "fp8e5"):
                self._no_code("a cast towards zero", scalar.name)
                return builder.cast_impl(src, dst_type)
            return self._handle(n.toward_zero(src.data, scalar.name), scalar)
        if scalar.name not in FORMATS:
            if source:
                return builder.cast_impl(src, dst_type)
            return original(builder, src, dst_type, mode)
        from_8_bits = source not in ("", "bf16")
        if scalar.name != "bf16" and (from_8_bits or src.data.dtype == np.float64):
            self._no_code(f"a cast from {source or 'fp64'}", scalar.name)
        return self._handle(n.narrow(src.data, scalar.name), scalar)

    def create_fma(self, original: Any, builder: Any, x: Any, y: Any, z: Any) -> Any:
        name = self._name(x, y, z)
        if not name:
            return original(builder, x, y, z)
        if name != "bf16":
            self._no_code("fma", name)
            return original(builder, x, y, z)
        result = n.fused_multiply_add(x.data, y.data, z.data)
        return self._handle(result, z.dtype.scalar)

    def create_clampf(
        self, original: Any, builder: Any, arg: Any, lo: Any, hi: Any, nans: Any
    ) -> Any:
        ignores = nans == self._module._ir.PROPAGATE_NAN.NONE
        if not ignores and not self._name(arg, lo, hi):
            return original(builder, arg, lo, hi, nans)
        upper, lower = (np.fmax, np.fmin) if ignores else (np.maximum, np.minimum)
        return builder.binary_op(builder.binary_op(arg, lo, upper), hi, lower)

    def create_dot(
        self, original: Any, builder: Any, a: Any, b: Any, *others: Any
    ) -> Any:
        if self._name(a, b):  # products are exact in float32
            single = self._module.tl.float32
            a = self._handle(n.widen(a.data), single)
            b = self._handle(n.widen(b.data), single)
        return original(builder, a, b, *others)

    def create_dot_scaled(self, original: Any, builder: Any, *operands: Any) -> Any:
        handles = (h for h in operands if isinstance(h, self._handle))
        name = self._name(*handles)
        if name:
            self._flag(f"Triton's interpreter computes dot_scaled in {name} wrongly")
        return original(builder, *operands)

    def create_atomic_rmw(
        self,
        original: Any,
        builder: Any,
        op: Any,
        ptr: Any,
        val: Any,
        mask: Any,
        sem: Any,
        scope: Any,
    ) -> Any:
        name = self._name(val)
        if not name:
            return original(builder, op, ptr, val, mask, sem, scope)
        if name != "bf16" or op != self._module._ir.ATOMIC_OP.FADD:
            self._no_code("atomics other than bf16 addition", name)
        found = np.zeros(val.data.shape, val.data.dtype)
        memory, always = self._module._interpreter, np.ones(1, np.bool_)
        for index in np.ndindex(val.data.shape):  # lanes may share an address
            if not mask.data[index]:
                continue
            where = ptr.data[index].reshape(1)
            before = memory.load(where, always, found[index].reshape(1), found.dtype)
            found[index] = before[0]
            total = n.widen(before) + n.widen(val.data[index])
            memory.store(where, n.narrow(total, name), always)
        return self._handle(found, val.dtype.scalar)


# Sums and scans of bfloat16 in Triton's interpreter, associated as GPU lanes do.
#
# A GPU adds across the lanes of a warp in a butterfly and scans by doubling, and
# rounds each partial result to bfloat16. How many elements a lane holds is up to
# the compiler, so the last bits of a long sum may differ from any one GPU's.


def tree_reductions_install(
    module: Any, flag: Callable[[str], None], patches: Patches
) -> None:
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
