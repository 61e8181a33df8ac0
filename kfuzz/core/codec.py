"""JSON codecs of the core dataclasses; errors carry the path to the bad field.

Encoding follows the type annotations. Three types have a form of their own:
a `float` that is not finite is the string "nan", "inf" or "-inf"; the raw
`values` of a tensor are a list of numbers (non-finite ones, and NaN payloads,
as bit-hex strings) up to `INLINE_ELEMENTS` elements and base64 beyond; `bits`
of a plant are a bit-hex string.
"""

import base64
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final, TypeVar, Union, get_args, get_origin

from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import (
    DTYPES,
    bits_to_number,
    number_to_bits,
    pack_bits,
    unpack_bits,
)
from kfuzz.core.errors import DecodeError, KfuzzError
from kfuzz.core.recipe import Case, Edge, Plant, TensorSpec
from kfuzz.core.shape_class import ShapeClass

T = TypeVar("T")

# Up to here a person may want to read the values; beyond, base64 is compact.
INLINE_ELEMENTS: Final = 256


def encode(value: Any) -> Any:
    """Return the strict-JSON form of a core value.

    Raises:
        TypeError: if the value is not made of core types.
    """
    if value is None or isinstance(value, bool | int | str):
        return str(value) if isinstance(value, StrEnum) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, tuple | list):
        return [encode(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, ShapeClass):
        return value.expression
    if isinstance(value, Plant):
        return {"at": list(value.at), "bits": hex(value.bits)}
    if is_dataclass(value) and not isinstance(value, type):
        out = {f.name: encode_field(value, f.name) for f in fields(value)}
        return {k: v for k, v in out.items() if v is not MISSING}
    raise TypeError(f"{type(value).__name__} has no JSON form")


def encode_field(owner: Any, name: str) -> Any:
    """Return the JSON form of one field; MISSING where it is left out."""
    value = getattr(owner, name)
    if isinstance(owner, TensorSpec):
        if value is None or (name == "plants" and not value):
            return MISSING
        if name == "values":
            return _encode_values(value, owner.dtype)
    left_out = ("layout", "destinations", "collective")
    if isinstance(owner, Case) and name in left_out and not value:
        return MISSING
    if isinstance(owner, Edge) and name == "allocation" and value is None:
        return MISSING
    return encode(value)


def decode(cls: type[T], data: Any, path: str = "") -> T:
    """Rebuild a core value from its JSON form.

    Args:
        cls: the dataclass (or annotation) expected.
        data: parsed JSON.
        path: where `data` stands in the document, for error messages.

    Raises:
        DecodeError: naming the path of the first bad field.
    """
    return typing.cast(T, _decode(cls, data, path))


def _decode(kind: Any, data: Any, path: str) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _decode_union(get_args(kind), data, path)
    if origin in (tuple, list):
        return _decode_sequence(kind, data, path)
    if origin is not None and issubclass(origin, Mapping):
        _expect(isinstance(data, dict), "an object", data, path)
        item = get_args(kind)[1]
        return {k: _decode(item, v, f"{path}.{k}") for k, v in data.items()}
    if kind is ShapeClass:
        _expect(isinstance(data, str), "an expression", data, path)
        try:
            return ShapeClass.parse(data)
        except KfuzzError as error:
            raise DecodeError(error.what, where=path) from None
    if kind is Plant:
        return _decode_plant(data, path)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        valid = [str(m) for m in kind]
        _expect(data in valid, f"one of {', '.join(valid)}", data, path)
        return kind(data)
    if is_dataclass(kind):
        return _decode_dataclass(kind, data, path)
    return _decode_scalar(kind, data, path)


def _decode_scalar(kind: Any, data: Any, path: str) -> Any:
    if kind is type(None):
        _expect(data is None, "null", data, path)
        return None
    if kind is bool:
        _expect(isinstance(data, bool), "true or false", data, path)
        return data
    if kind is int:
        ok = isinstance(data, int) and not isinstance(data, bool)
        _expect(ok, "an integer", data, path)
        return data
    if kind is float:
        if data in ("nan", "inf", "-inf"):
            return float(data)
        ok = isinstance(data, int | float) and not isinstance(data, bool)
        _expect(ok, "a number", data, path)
        try:
            return float(data)
        except OverflowError:
            raise DecodeError("beyond the range of a float", where=path) from None
    if kind is str:
        _expect(isinstance(data, str), "a string", data, path)
        return data
    raise TypeError(f"no codec for {kind!r}")


def _decode_union(options: tuple[Any, ...], data: Any, path: str) -> Any:
    if data is None and type(None) in options:
        return None
    rest = [o for o in options if o is not type(None)]
    # Scalars are `bool | int | float`, or null: the first that fits keeps the JSON
    # type.
    for option in rest[:-1]:
        try:
            return _decode(option, data, path)
        except DecodeError:
            continue
    return _decode(rest[-1], data, path)


def _decode_sequence(kind: Any, data: Any, path: str) -> Any:
    _expect(isinstance(data, list), "a list", data, path)
    item = get_args(kind)[0]
    return tuple(_decode(item, v, f"{path}[{i}]") for i, v in enumerate(data))


def _decode_plant(data: Any, path: str) -> Plant:
    _expect(isinstance(data, dict), "an object", data, path)
    for key in ("at", "bits"):
        _expect(key in data, f"a field {key!r}", data, path)
    at = _decode(tuple[int, ...], data["at"], f"{path}.at")
    return Plant(at, _hex(data["bits"], f"{path}.bits"))


@cache
def _annotations(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _decode_dataclass(cls: Any, data: Any, path: str) -> Any:
    _expect(isinstance(data, dict), "an object", data, path)
    hints = _annotations(cls)
    known = {f.name for f in fields(cls)}
    for key in data:
        _expect(key in known, f"one of {', '.join(sorted(known))}", key, path)
    values: dict[str, Any] = {}
    for f in fields(cls):
        place = f"{path}.{f.name}" if path else f.name
        if f.name not in data:
            if f.default is MISSING and f.default_factory is MISSING:
                raise DecodeError("missing field", where=place)
        elif cls is TensorSpec and f.name == "values":
            values["values"] = _decode_values(data["values"], data.get("dtype"), place)
        else:
            values[f.name] = _decode(hints[f.name], data[f.name], place)
    if cls is Declaration:
        try:
            return Declaration().declare("", **values)
        except KfuzzError as error:
            raise DecodeError(error.what, where=path, fix=error.fix) from None
    made = cls(**values)
    if isinstance(made, TensorSpec) and (problem := made.problem()):
        raise DecodeError(problem, where=path)
    return made


def _encode_values(raw: bytes, dtype: str) -> Any:
    patterns = unpack_bits(raw, dtype) if len(raw) <= INLINE_ELEMENTS * 8 else []
    if len(raw) > INLINE_ELEMENTS * DTYPES[dtype].itemsize:
        return base64.b64encode(raw).decode()
    numbers = [bits_to_number(p, dtype) for p in patterns]
    width = 2 * DTYPES[dtype].itemsize
    return [
        n if math.isfinite(n) else f"0x{p:0{width}x}"
        for n, p in zip(numbers, patterns, strict=True)
    ]


def _decode_values(data: Any, dtype: Any, path: str) -> bytes:
    owner = path.removesuffix("values")
    _expect(dtype in DTYPES, f"one of {', '.join(DTYPES)}", dtype, f"{owner}dtype")
    if isinstance(data, str):
        try:
            return base64.b64decode(data, validate=True)
        except ValueError as error:  # binascii.Error, or letters beyond ASCII
            raise DecodeError(f"bad base64: {error}", where=path) from None
    _expect(isinstance(data, list), "a list or base64", data, path)
    limit = 1 << (8 * DTYPES[dtype].itemsize)
    patterns = []
    for i, item in enumerate(data):
        place = f"{path}[{i}]"
        if isinstance(item, str):
            bits = _hex(item, place)
            _expect(bits < limit, f"bits of {dtype}", item, place)
        else:
            _expect(
                isinstance(item, int | float) and not isinstance(item, bool),
                "a number or bit-hex string", item, place,
            )  # fmt: skip
            try:
                bits = number_to_bits(item, dtype)
            except (ValueError, OverflowError):
                raise DecodeError(
                    f"{item!r} is not a value of {dtype}", where=place
                ) from None
        patterns.append(bits)
    return pack_bits(patterns, dtype)


def _hex(data: Any, path: str) -> int:
    _expect(isinstance(data, str) and data.startswith("0x"), "bit-hex", data, path)
    try:
        return int(data, 16)
    except ValueError:
        raise DecodeError(f"{data!r} is not bit-hex", where=path) from None


def _expect(holds: bool, wanted: str, data: Any, path: str) -> None:
    if not holds:
        shown = repr(data) if len(repr(data)) <= 60 else repr(data)[:57] + "..."
        raise DecodeError(f"expected {wanted}, found {shown}", where=path or "document")
