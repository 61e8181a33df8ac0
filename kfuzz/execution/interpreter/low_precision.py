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

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.interpreter.programs import array

Array = NDArray[Any]

DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp8e4nv": np.dtype(ml_dtypes.float8_e4m3fn),
    "fp8e5": np.dtype(ml_dtypes.float8_e5m2),
}
NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}
_NAN_BITS: Final = {"bf16": 0x7FFF, "fp8e4nv": 0x7F, "fp8e5": 0x7F}
_GREATEST: Final = {"fp8e4nv": 448.0, "fp8e5": 57344.0}
# Integers from here on need more bits than float64 has.
_EXACT_INTEGERS: Final = 2**53
FORMATS: Final = frozenset(DTYPES)
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
# Of an operand of a scaled product, absent up to some release.
_SCALED: Final = "_mxfp_value_handle_to_float32"
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
        flag: called with why a kernel's results mean nothing, where they do not.
        patches: takes what is replaced.
    """
    builder = module.InterpreterBuilder
    operations = _Operations(module, flag)
    others = ["create_dot_scaled"]
    if (wide := getattr(module, _SCALED, None)) is not None:
        others = []  # it reads bits, and is right otherwise
        patches.set(
            module, _SCALED,
            lambda handle: (
                widen(handle.data) if name_of(handle.data) else wide(handle)
            ),
        )  # fmt: skip
    for name in (*_NEEDED["InterpreterBuilder"], *others):
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
        if name in DTYPES and not tt_dtype.is_ptr():
            return DTYPES[name]
        return original(tt_dtype)

    return element_type


class _RawMemory:
    """The native part, which knows NumPy's own types only."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self._bits = {d: np.dtype(f"u{d.itemsize}") for d in DTYPES.values()}

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
        found = self._native.atomic_cas(pointers, raw(cmp), raw(value), sem)
        return found.view(cmp.dtype)


class _Operations:
    """Each method stands for an operation of the builder, which it is given."""

    def __init__(self, module: Any, flag: Flag) -> None:
        self._module, self._flag = module, flag
        self._handle, self._names = module.TensorHandle, NAMES

    def _name(self, *handles: Any) -> str:
        """Return the format among the operands; handles may misname theirs."""
        for handle in handles:
            if name := self._names.get(handle.data.dtype):
                return str(name)
        return ""

    def _no_code(self, what: str, name: str) -> None:
        self._flag(f"Triton has no GPU code for {what} in {name}")

    def get_bf16(self) -> Any:
        return lambda _, value: self._handle(constant(value), self._module.tl.bfloat16)

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
        left, right = widen(lhs.data), widen(rhs.data)
        result = array(op(left, right))
        if result.dtype == np.bool_:
            return self._handle(result, self._module.tl.int1)
        result = _signed_zeros(op, left, right, result)
        return self._handle(narrow(result, name), lhs.dtype.scalar)

    def unary_op(self, original: Any, builder: Any, arg: Any, op: Any) -> Any:
        name = self._name(arg)
        if not name:
            return original(builder, arg, op)
        if name != "bf16" or op is not np.negative:
            self._no_code(op.__name__, name)
        if op is np.negative:  # flips one bit, of NaN too
            bits = raw(arg.data)
            sign = bits.dtype.type(1 << (8 * bits.itemsize - 1))
            return self._handle((bits ^ sign).view(arg.data.dtype), arg.dtype)
        result = op(widen(arg.data))
        return self._handle(narrow(result, name), arg.dtype.scalar)

    def cast_impl(self, original: Any, builder: Any, src: Any, dst_type: Any) -> Any:
        source, scalar = self._name(src), dst_type.scalar
        if scalar.name in FORMATS:
            data = narrow(src.data, scalar.name)
            # Only constants come here for 8 bits, and are folded if exact.
            if scalar.name != "bf16" and not np.array_equal(
                widen(data), widen(src.data), equal_nan=True
            ):
                self._no_code("an inexact constant", scalar.name)
            return self._handle(data, scalar)
        if source:
            wide = self._handle(widen(src.data), self._module.tl.float32)
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
            return self._handle(toward_zero(src.data, scalar.name), scalar)
        if scalar.name not in FORMATS:
            if source:
                return builder.cast_impl(src, dst_type)
            return original(builder, src, dst_type, mode)
        from_8_bits = source not in ("", "bf16")
        if scalar.name != "bf16" and (from_8_bits or src.data.dtype == np.float64):
            self._no_code(f"a cast from {source or 'fp64'}", scalar.name)
        return self._handle(narrow(src.data, scalar.name), scalar)

    def create_fma(self, original: Any, builder: Any, x: Any, y: Any, z: Any) -> Any:
        name = self._name(x, y, z)
        if not name:
            return original(builder, x, y, z)
        if name != "bf16":
            self._no_code("fma", name)
            return original(builder, x, y, z)
        result = fused_multiply_add(x.data, y.data, z.data)
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
            a = self._handle(widen(a.data), single)
            b = self._handle(widen(b.data), single)
        return original(builder, a, b, *others)

    def create_dot_scaled(self, original: Any, builder: Any, *operands: Any) -> Any:
        handles = (h for h in operands if isinstance(h, self._handle))
        name = self._name(*handles)
        if name:
            self._flag(f"Triton's interpreter computes dot_scaled in {name} wrongly")
        return original(builder, *operands)

    def create_atomic_rmw(
        self, original: Any, builder: Any, op: Any, ptr: Any, *others: Any
    ) -> Any:
        val, mask = others[:2]
        name = self._name(val)
        if not name:
            return original(builder, op, ptr, *others)
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
            total = widen(before) + widen(val.data[index])
            memory.store(where, narrow(total, name), always)
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
        flag: called with why results mean nothing, where they do not.
        patches: takes what is replaced.
    """

    def checked(data: Any, what: str) -> str:
        name = name_of(data)
        if name not in ("", "bf16"):
            flag(f"Triton has no GPU code for {what} in {name}")
        return name

    original_sum, original_min_max = module.ReduceOps.sum, module.ReduceOps.min_max

    def total(self: Any, value: Any) -> Any:
        name = checked(value.handle.data, "sum")
        data = value.handle.data
        if data.dtype.kind in "biu":  # modulo the type's range; a bool is of one bit
            add = np.bitwise_xor if data.dtype == np.bool_ else np.add
            bits = add.reduce(data, self.axis, data.dtype, keepdims=self.keep_dims)
            return self.to_tensor(bits, value.dtype)
        if not name:
            return original_sum(self, value)
        data = widen(data)
        axis, kept = self.axis, [1] * data.ndim
        if axis is None:
            data = data.reshape(-1)
        else:
            data = np.moveaxis(data, axis, 0)
            kept = list(value.handle.data.shape)
            kept[axis] = 1
        while len(data) > 1:  # lane i adds lane i + half, as a butterfly does
            half = len(data) // 2
            pairs = widen(narrow(data[:half] + data[half : 2 * half], name))
            data = np.concatenate([pairs, data[2 * half :]])
        result = narrow(data[0].reshape(kept) if self.keep_dims else data[0], name)
        return self.to_tensor(result, value.dtype)

    def min_max(self: Any, value: Any, *operations: Any, **named: Any) -> Any:
        value = value[0] if isinstance(value, tuple) else value
        if checked(value.handle.data, "comparison"):
            data = widen(value.handle.data)
            value = SimpleNamespace(
                handle=SimpleNamespace(data=data), dtype=value.dtype
            )
        return original_min_max(self, value, *operations, **named)

    def scan(original: Any, op: Any) -> Any:
        def scanned(self: Any, value: Any) -> Any:
            name = checked(value.handle.data, "scan")
            if not name:
                return original(self, value)
            data = np.moveaxis(widen(value.handle.data), self.axis, 0)
            reach = 1
            while reach < len(data):  # Kogge and Stone, as the lanes of a warp
                further = widen(narrow(op(data[reach:], data[:-reach]), name))
                data = np.concatenate([data[:reach], further])
                reach *= 2
            result = narrow(np.moveaxis(data, 0, self.axis), name)
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


# Rounding to bfloat16 and 8-bit floats as NVIDIA GPUs do, on NumPy arrays.
#
# Triton names the formats: "bf16", "fp8e4nv" (e4m3fn) and "fp8e5" (e5m2). What is
# imitated is the code that Triton 3.6 to 3.9 emit for compute capability 9.0, read
# from their PTX: `cvt.rn` for bfloat16, `cvt.rn.satfinite` for the 8-bit formats (every
# value beyond the greatest finite one, infinities too, becomes that one), NaN in
# its canonical bits (PTX ISA, `cvt`).


def name_of(data: Array) -> str:
    """Return Triton's name of an array's format, "" for any other dtype."""
    return NAMES.get(data.dtype, "")


def raw(data: Array) -> Array:
    """View a low-precision array as unsigned integers; others are returned."""
    return data.view(f"u{data.itemsize}") if name_of(data) else data


def widen(data: Array) -> Array:
    """Return a low-precision array as float32, exactly; others are returned."""
    return data.astype(np.float32) if name_of(data) else data


def narrow(values: Array, name: str) -> Array:
    """Round to nearest, ties to even, once.

    Args:
        values: bool, integers, or floats of any width, any shape.
        name: a key of `DTYPES`.

    Returns:
        an array of `DTYPES[name]`.
    """
    wide = array(_as_float32(widen(array(values))))
    if name in _GREATEST:
        greatest = np.float32(_GREATEST[name])
        wide = array(np.clip(wide, -greatest, greatest))
    return _with_canonical_nan(wide.astype(DTYPES[name]), wide, name)


def toward_zero(values: Array, name: str) -> Array:
    """Round float32 values towards zero; infinities stay.

    Args:
        values: float32, any shape.
        name: "bf16", "fp8e5" or "fp16".
    """
    if name == "bf16":
        kept = (values.view(np.uint32) >> 16).astype(np.uint16)
        return _with_canonical_nan(kept.view(DTYPES[name]), values, name)
    half = values.astype(np.float16)
    too_far = np.abs(half.astype(np.float32)) > np.abs(values)
    half = np.where(too_far, np.nextafter(half, np.float16(0)), half)
    if name == "fp16":
        return half
    kept = (half.view(np.uint16) >> 8).astype(np.uint8)  # the same exponents
    return _with_canonical_nan(kept.view(DTYPES[name]), values, name)


def constant(value: float) -> Array:
    """Return the bfloat16 that Triton makes of a Python number, as (1,).

    Triton prints the constant with six decimals and reads it back
    (`std::to_string` in its builder), so 1e-7 becomes 0.
    """
    single = float(np.float32(value))
    return narrow(np.array([float(f"{single:.6f}")]), "bf16")


def fused_multiply_add(x: Array, y: Array, z: Array) -> Array:
    """Return x*y + z in bfloat16 with one rounding."""
    product = widen(x).astype(np.float64) * widen(y)  # 16 bits: exact
    addend = widen(z).astype(np.float64)
    total = product + addend
    # Knuth's two-sum: total + lost is the exact sum.
    virtual = total - product
    lost = (product - (total - virtual)) + (addend - virtual)
    return narrow(_sticky(total, lost), "bf16")


def _with_canonical_nan(data: Array, source: Array, name: str) -> Array:
    unknown = np.isnan(source)
    if unknown.any():
        raw(data)[unknown] = _NAN_BITS[name]
    return data


def _as_float32(values: Array) -> Array:
    """Return float32 values that round further as the exact values would."""
    kind, size = values.dtype.kind, values.itemsize
    if kind in "iu" and size == 8:
        values = _squeezed(values)
    if kind == "f" and size <= 4:
        return values.astype(np.float32)
    exact = values.astype(np.float64)
    single = exact.astype(np.float32)
    lost = np.where(np.isfinite(exact), exact - single.astype(np.float64), 0.0)
    return _sticky(single, lost)


def _squeezed(values: Array) -> Array:
    """Fold the last 12 bits of great integers into one, so that float64 holds them.

    Narrow formats keep at most 8 bits: what they round to does not change.
    """
    last = values & values.dtype.type(0xFFF)
    folded = (values ^ last) | np.where(last != 0, values.dtype.type(0x800), 0).astype(
        values.dtype
    )
    below = values < _EXACT_INTEGERS
    if values.dtype.kind == "i":
        below &= values > -_EXACT_INTEGERS
    return np.where(below, values, folded)


def _sticky(rounded: Array, lost: Array) -> Array:
    """Round to odd: of the neighbours of rounded + lost, the one with an odd bit.

    A further rounding to a format with at least two bits less is then correct
    (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008).
    """
    bits = rounded.view(f"i{rounded.itemsize}")
    even = (bits & 1) == 0
    towards = np.copysign(np.array(np.inf, rounded.dtype), lost.astype(rounded.dtype))
    odd = np.nextafter(rounded, towards)
    overflowed = np.isinf(rounded) & (lost != 0) & ~np.isnan(lost)
    changed = ((lost != 0) & ~np.isnan(lost) & np.isfinite(rounded) & even) | overflowed
    return np.where(changed, odd, rounded)
