"""Where Triton's interpreter hands its memory operations to the address check."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.interpreter.addresses import AddressCheck

Current = Callable[[], AddressCheck | None]

_ORIGIN: Final = "kfuzz.origin"  # the argument that a pointer was computed from

# Operations whose result points into the memory that their operand points into.
_CARRIERS: Final = (
    "create_addptr", "create_splat", "create_unsplat", "create_expand_dims",
    "create_broadcast", "create_reshape", "create_trans",
)  # fmt: skip
_CASTS: Final = ("create_bitcast", "create_int_to_ptr")
_ATOMICS: Final = (
    "create_atomic_rmw", "create_atomic_cas", "create_atomic_load",
    "create_atomic_store", "create_atomic_poll",
)  # fmt: skip
_PLAIN: Final = ("create_masked_load", "create_masked_store")
_BLOCKS: Final = ("BlockPointerHandle", "TensorDescHandle")


def install(module: Any, current: Current, patches: Patches) -> None:
    """Have every memory operation checked until the patches are undone.

    Args:
        module: `triton.runtime.interpreter`.
        current: returns the check of the call that runs, if any.
        patches: takes what is replaced.
    """
    builder, handle = module.InterpreterBuilder, module.TensorHandle
    patches.set(module, "_interpreter", _CheckedMemory(module._interpreter, current))

    def wrap(owner: Any, names: tuple[str, ...], wrapper: Any) -> None:
        for name in names:
            original = getattr(owner, name, None)
            if original is not None:
                patches.set(owner, name, wrapper(original))

    wrap(builder, ("binary_op",), lambda original: _bits(original, module.tl.int1))
    wrap(builder, _CARRIERS, lambda original: _carrier(original, handle))
    wrap(builder, _CASTS, lambda original: _cast(original, handle, current))
    for names, atomic in ((_ATOMICS, True), (_PLAIN, False)):
        wrap(builder, names, partial(_operation, handle, current, atomic))
    for name in _BLOCKS:
        wrap(getattr(module, name, None), ("materialize_pointers",), _materialized)
    patches.set(module, "_implicit_cvt", _converted(module._implicit_cvt, handle))


class _CheckedMemory:
    """The native part of the interpreter, behind the check."""

    def __init__(self, native: Any, current: Current) -> None:
        self._native = native
        self._current = current

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        check = self._current()
        if check is None:
            return self._native.load(pointers, mask, other, dtype)
        result = check.load(self._native, pointers, mask, other, dtype)
        check.polled(pointers, result)
        return result

    def store(self, pointers: Any, values: Any, mask: Any) -> Any:
        check = self._current()
        if check is None:
            return self._native.store(pointers, values, mask)
        return check.store(self._native, pointers, values, mask)

    def atomic_rmw(
        self, operation: Any, pointers: Any, value: Any, mask: Any, sem: Any
    ) -> Any:
        check = self._current()
        if check is None:
            return self._native.atomic_rmw(operation, pointers, value, mask, sem)
        native = self._native
        result = check.atomic_rmw(native, operation, pointers, value, mask, sem)
        check.polled(pointers, result)
        return result

    def atomic_cas(self, pointers: Any, cmp: Any, value: Any, sem: Any) -> Any:
        check = self._current()
        if check is None:
            return self._native.atomic_cas(pointers, cmp, value, sem)
        result = check.atomic_cas(self._native, pointers, cmp, value, sem)
        check.polled(pointers, result)
        return result


def _bits(original: Any, int1: Any) -> Any:
    """Give a comparison the type of bits, which the interpreter calls its operands'.

    Of a number it would become a block of numbers, which is no mask.
    """

    def binary_op(builder: Any, lhs: Any, rhs: Any, op: Any) -> Any:
        made = original(builder, lhs, rhs, op)
        if made.data.dtype == np.bool_:
            made.dtype = int1
        return made

    return binary_op


def _origin(operands: tuple[Any, ...], handle: Any) -> Any:
    for operand in operands:
        if isinstance(operand, handle) and operand.attr:
            found = operand.attr.get(_ORIGIN)
            if found is not None:
                return found
    return None


def _carrier(original: Any, handle: Any) -> Any:
    """Hand the origin of a pointer on to what is computed from it."""

    def operation(builder: Any, *operands: Any, **named: Any) -> Any:
        made = original(builder, *operands, **named)
        for operand in operands:  # mostly no pointers: their attributes are empty
            if operand.__class__ is handle and operand.attr:
                found = operand.attr.get(_ORIGIN)
                if found is not None:
                    made.attr[_ORIGIN] = found
                    break
        return made

    return operation


def _cast(original: Any, handle: Any, current: Current) -> Any:
    def cast(builder: Any, source: Any, to: Any, *others: Any) -> Any:
        made = original(builder, source, to, *others)
        if to.scalar.is_ptr():
            found = _origin((source,), handle)
            if found is not None:
                made.attr[_ORIGIN] = found
            check = current()
            if check is not None and not source.dtype.scalar.is_ptr():
                check.casts = True
        return made

    return cast


def _operation(handle: Any, current: Current, atomic: bool, original: Any) -> Any:
    """Tell the check what kind of operation runs, and on whose memory."""

    def operation(builder: Any, *operands: Any, **named: Any) -> Any:
        check = current()
        if check is None:
            return original(builder, *operands, **named)
        outer = check.atomic, check.origin
        check.atomic, check.origin = outer[0] or atomic, _origin(operands, handle)
        try:
            return original(builder, *operands, **named)
        finally:
            check.atomic, check.origin = outer

    return operation


def _materialized(original: Any) -> Any:
    """Hand the origin of a block pointer or descriptor on to its pointers."""

    def materialize_pointers(block: Any, *operands: Any) -> Any:
        pointers, mask = original(block, *operands)
        found = block.base.attr.get(_ORIGIN)
        if found is not None:
            pointers.attr[_ORIGIN] = found
        return pointers, mask

    return materialize_pointers


def _converted(original: Any, handle: Any) -> Any:
    """Note of each tensor that a kernel is given that its pointer comes from it."""

    def converted(argument: Any) -> Any:
        made = original(argument)
        if hasattr(argument, "data_ptr"):
            held = getattr(made, "handle", None)
            if isinstance(held, handle):
                held.attr[_ORIGIN] = int(held.data[0])
        return made

    return converted
