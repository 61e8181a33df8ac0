"""Arguments of a launch in the form that a kernel's own declaration gives them."""

import ctypes
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from kfuzz.cuda.prototypes import Parameter, Prototype

_INTEGERS: Final = frozenset(
    {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
)
# What tensors of another dtype may stand for: bytes are bytes.
_BYTES: Final = frozenset(
    {"int8", "uint8", "bool", "float8_e4m3fn", "float8_e5m2"}
)  # fmt: skip
_EXPLICIT: Final = "pass a numpy scalar of its type, for example np.int32(n)"


def packed(prototype: Prototype | None, values: Sequence[Any], name: str) -> list[Any]:
    """Return arguments as what a launch points to: ctypes values, None as no address.

    Args:
        prototype: of the kernel; None where the source does not declare it.
        values: tensors, Python's numbers, numpy's, None.
        name: of the kernel, for error messages.

    Raises:
        TypeError: if one is not what the kernel takes, or its type cannot be told.
        OverflowError: if a number is too large for its type.
    """
    declared = None if prototype is None else prototype.parameters
    if declared is not None and len(declared) != len(values):
        listed = ", ".join(p.text for p in declared)
        raise TypeError(
            f"{name}({listed}) takes {len(declared)} arguments, {len(values)} are given"
        )
    made = []
    for number, value in enumerate(values):
        parameter = None if declared is None else declared[number]
        where = f"argument {number} of {name}"
        if parameter is not None:
            where += f" ({parameter.text})"
        made.append(_packed(parameter, value, where))
    return made


def _packed(parameter: Parameter | None, value: Any, where: str) -> Any:
    if isinstance(value, Tensor):
        return _address(parameter, value, where)
    if isinstance(value, ctypes._SimpleCData | ctypes.Structure | ctypes.Array):
        return value
    if isinstance(value, np.generic):
        return _of_numpy(parameter, value, where)
    if value is None:
        if parameter is not None and not parameter.pointer:
            raise TypeError(f"{where} takes no None")
        return ctypes.c_void_p(None)
    if not isinstance(value, bool | int | float):
        raise TypeError(f"{where} takes no {type(value).__name__}")
    if parameter is None:
        raise TypeError(
            f"{where}: the kernel's parameters cannot be read from its declaration "
            f"(a template, several of one name, or none in this source); {_EXPLICIT}"
        )
    if parameter.pointer:
        raise TypeError(f"{where} takes a tensor, {value!r} is given")
    if not parameter.type or parameter.type == "void":
        raise TypeError(f"{where}: its type is no basic one; {_EXPLICIT}")
    return _number(parameter.type, value, where)


def _address(parameter: Parameter | None, value: Tensor, where: str) -> ctypes.c_void_p:
    if parameter is not None and not parameter.pointer:
        raise TypeError(f"{where} takes a number, a tensor is given")
    given = str(value.dtype).removeprefix("torch.")
    wanted = "" if parameter is None else parameter.type
    same = wanted in ("", "void", given) or {wanted, given} <= _BYTES
    # Kernels that know no sign take the bits.
    same = same or (
        {wanted, given} <= _INTEGERS and wanted.strip("u") == given.strip("u")
    )
    if not same:
        raise TypeError(f"{where} takes {wanted}, the tensor is {given}")
    return ctypes.c_void_p(value.data_ptr())


def _of_numpy(parameter: Parameter | None, value: np.generic, where: str) -> Any:
    if parameter is not None:
        size = 8 if parameter.pointer else _size(parameter.type)
        if parameter.pointer or (size and size != value.itemsize):
            what = "an address" if parameter.pointer else f"{size} bytes"
            raise TypeError(f"{where} takes {what}, {value.dtype} is given")
    data = value.tobytes()
    return (ctypes.c_ubyte * len(data)).from_buffer_copy(data)


def _size(kind: str) -> int:
    """Return the bytes of a basic type, 0 for another."""
    dtype = getattr(torch, kind, None) if kind else None
    return dtype.itemsize if isinstance(dtype, torch.dtype) else 0


def _number(kind: str, value: Any, where: str) -> Any:
    """Return a number of Python's in a type of C's."""
    if kind in _INTEGERS or kind == "bool":
        if isinstance(value, float):
            raise TypeError(f"{where} takes {kind}, the float {value!r} is given")
        if kind == "bool":
            return ctypes.c_bool(bool(value))
        made = getattr(ctypes, f"c_{kind}")(int(value))
        if made.value != int(value):
            raise OverflowError(f"{where} takes {kind}, {value} does not fit")
        return made
    number = float(value)
    if kind == "float64":
        return ctypes.c_double(number)
    if kind == "float32":
        return ctypes.c_float(number)
    if kind == "float16":
        with np.errstate(over="ignore"):
            return ctypes.c_uint16(int(np.float16(number).view(np.uint16)))
    if kind == "bfloat16":
        return ctypes.c_uint16(_bfloat16(number))
    raise TypeError(f"{where} takes {kind}; {_EXPLICIT}")


def _bfloat16(number: float) -> int:
    """Return the bits of the nearest bfloat16 to the nearest float32, ties to even."""
    if math.isnan(number):
        return 0x7FC0
    with np.errstate(over="ignore"):
        bits = int(np.float32(number).view(np.uint32))
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
