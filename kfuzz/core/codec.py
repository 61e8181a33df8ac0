"""JSON codecs of the core dataclasses; errors carry the path to the bad field.

Encoding follows the type annotations. Three types have a form of their own:
a `float` that is not finite is the string "nan", "inf" or "-inf"; the raw
`values` of a tensor are a list of numbers (non-finite ones, and NaN payloads,
as bit-hex strings) up to `INLINE_ELEMENTS` elements and base64 beyond; `bits`
of a plant are a bit-hex string. Fields that a class lists as `UNSAID` are left out
at their default.
"""

import base64
import math
import reprlib
import types
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final, TypeVar, Union, get_args, get_origin

from kfuzz.core.declaration import Declaration, ShapeClass
from kfuzz.core.dtypes import (
    DTYPES,
    bits_to_number,
    number_to_bits,
    pack_bits,
    unpack_bits,
)
from kfuzz.core.errors import DecodeError, KfuzzError
from kfuzz.core.recipe import Plant, TensorSpec

T = TypeVar("T")

# What is shown of data that is wrong: of a long text or list its beginning.
_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60
_SHORT.maxlist = _SHORT.maxdict = 16

# Up to here a person may want to read the values; beyond, base64 is compact.
INLINE_ELEMENTS: Final = 256


def encode(value: Any) -> Any:
    """Return the strict-JSON form of a core value.

    Raises:
        TypeError: if the value is not made of core types.
    """
    match value:
        case StrEnum():
            return str(value)
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else repr(value)
        case tuple() | list():
            return [encode(v) for v in value]
        case Mapping():
            return {str(k): encode(v) for k, v in value.items()}
        case ShapeClass():
            return value.expression
    if not is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"{type(value).__name__} has no JSON form")
    unsaid: tuple[str, ...] = getattr(value, "UNSAID", ())
    out = {}
    for f in fields(value):
        held = getattr(value, f.name)
        if f.name in unsaid and (held == f.default or held == {}):
            continue
        if isinstance(value, TensorSpec) and f.name == "values":
            out[f.name] = _encode_values(held, value.dtype)
        else:
            is_bits = isinstance(value, Plant) and f.name == "bits"
            out[f.name] = hex(held) if is_bits else encode(held)
    return out


def decode(cls: type[T], data: Any, path: str = "") -> T:
    """Rebuild a core value from its JSON form.

    Args:
        cls: the dataclass (or annotation) expected.
        data: parsed JSON.
        path: where `data` stands in the document, for error messages.

    Raises:
        DecodeError: naming the path of the first bad field.
    """
    kind: Any = cls
    return typing.cast(T, _decoder(kind)(data, path))


# Where a value stands: a text, or what it stands in with its name or number there.
# Thousands of findings are read in a second: it is written out only on an error.
_Place = Any
_Decoder = Callable[[Any, _Place], Any]


def _text(place: _Place) -> str:
    parts = []
    while isinstance(place, tuple):
        place, last = place
        parts.append(f"[{last}]" if isinstance(last, int) else f".{last}")
    path = str(place) + "".join(reversed(parts))
    return path.replace(": .", ": ", 1).removeprefix(".")


def _unlike(wanted: str, data: Any, place: _Place) -> DecodeError:
    shown = _SHORT.repr(data)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    what = f"expected {wanted}, found {shown}"
    return DecodeError(what, where=_text(place) or "document")


def _checked(kind: type, wanted: str, data: Any, place: _Place) -> Any:
    if type(data) is not kind:
        raise _unlike(wanted, data, place)
    return data


def _exactly(kind: type, wanted: str) -> _Decoder:
    return lambda data, place: _checked(kind, wanted, data, place)


def _decode_float(data: Any, place: _Place) -> float:
    if data in ("nan", "inf", "-inf"):
        return float(data)
    if not isinstance(data, int | float) or isinstance(data, bool):
        raise _unlike("a number", data, place)
    try:
        return float(data)
    except OverflowError:
        raise DecodeError("beyond the range of a float", where=_text(place)) from None


def _made(make: Callable[[], T], place: _Place) -> T:
    try:
        return make()
    except KfuzzError as error:
        where, fix = _text(place), error.fix
        raise DecodeError(error.what, where=where, fix=fix) from None


def _hex(data: Any, place: _Place) -> int:
    if isinstance(data, str) and data.startswith("0x"):
        with suppress(ValueError):
            return int(data, 16)
    raise _unlike("bit-hex", data, place)


_DECODERS: Final[dict[Any, _Decoder]] = {
    type(None): _exactly(type(None), "null"),
    bool: _exactly(bool, "true or false"),
    int: _exactly(int, "an integer"),
    float: _decode_float,
    str: _exactly(str, "a string"),
    ShapeClass: lambda data, place: _made(lambda: ShapeClass.parse(data), place),
}


@cache
def _decoder(kind: Any) -> _Decoder:
    """Return what rebuilds values of an annotation."""
    origin = get_origin(kind)
    if kind in _DECODERS:
        return _DECODERS[kind]
    if origin in (Union, types.UnionType):
        return _union_decoder(get_args(kind))
    if origin in (tuple, list):
        item = _decoder(get_args(kind)[0])
        return lambda data, place: tuple(
            [
                item(v, (place, i))
                for i, v in enumerate(_checked(list, "a list", data, place))
            ]
        )
    if origin is not None and issubclass(origin, Mapping):
        value = _decoder(get_args(kind)[1])
        return lambda data, place: {
            k: value(v, (place, k))
            for k, v in _checked(dict, "an object", data, place).items()
        }
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return lambda data, place: kind(_one_of(data, tuple(kind), place))
    if is_dataclass(kind):
        return _dataclass_decoder(kind)
    raise TypeError(f"no codec for {kind!r}")


def _one_of(data: Any, valid: tuple[str, ...], place: _Place) -> str:
    if not isinstance(data, str) or data not in valid:
        raise _unlike(f"one of {', '.join(valid)}", data, place)
    return data


def _union_decoder(options: tuple[Any, ...]) -> _Decoder:
    # Scalars are `bool | int | float`, or null: the first that fits keeps the JSON
    # type.
    *others, last = [_decoder(o) for o in options if o is not type(None)]

    def decode_union(data: Any, place: _Place) -> Any:
        if data is None and type(None) in options:
            return None
        for option in others:
            with suppress(DecodeError):
                return option(data, place)
        return last(data, place)

    return decode_union


def _dataclass_decoder(cls: Any) -> _Decoder:
    hints = typing.get_type_hints(cls)
    values_of = "values" if cls is TensorSpec else ""  # bytes: they have no codec
    parts = {
        f.name: _decoder(hints[f.name]) for f in fields(cls) if f.name != values_of
    }
    if cls is Plant:
        parts["bits"] = _hex
    names = tuple(f.name for f in fields(cls))
    readable = (*names, *getattr(cls, "RETIRED", ()))
    required = {
        f.name
        for f in fields(cls)
        if f.default is MISSING and f.default_factory is MISSING
    }
    checked = callable(getattr(cls, "problem", None))

    def decode_dataclass(data: Any, place: _Place) -> Any:
        for key in _checked(dict, "an object", data, place):
            _one_of(key, readable, place)
        values: dict[str, Any] = {}
        for name in names:
            if name not in data:
                if name in required:
                    raise DecodeError("missing field", where=_text((place, name)))
            elif name == values_of:
                found, dtype = data["values"], data.get("dtype")
                values[name] = _decode_values(found, dtype, (place, name))
            else:
                values[name] = parts[name](data[name], (place, name))
        if cls is Declaration:
            return _made(lambda: Declaration().declare("", **values), place)
        made = cls(**values)
        if checked and (problem := made.problem()):
            raise DecodeError(problem, where=_text(place))
        return made

    return decode_dataclass


def _encode_values(raw: bytes, dtype: str) -> Any:
    width = DTYPES[dtype].itemsize
    if len(raw) > INLINE_ELEMENTS * width:
        return base64.b64encode(raw).decode()
    pairs = ((p, bits_to_number(p, dtype)) for p in unpack_bits(raw, dtype))
    return [n if math.isfinite(n) else f"0x{p:0{2 * width}x}" for p, n in pairs]


def _decode_values(data: Any, dtype: Any, place: _Place) -> bytes:
    _one_of(dtype, tuple(DTYPES), (place[0], "dtype"))
    if isinstance(data, str):
        try:
            return base64.b64decode(data, validate=True)
        except ValueError as error:  # binascii.Error, or letters beyond ASCII
            raise DecodeError(f"bad base64: {error}", where=_text(place)) from None
    limit = 1 << (8 * DTYPES[dtype].itemsize)
    patterns = []
    for i, item in enumerate(_checked(list, "a list or base64", data, place)):
        try:
            number = isinstance(item, int | float) and not isinstance(item, bool)
            bits = number_to_bits(item, dtype) if number else _hex(item, (place, i))
        except (ValueError, OverflowError):
            what = f"{item!r} is not a value of {dtype}"
            raise DecodeError(what, where=_text((place, i))) from None
        if bits >= limit:
            raise _unlike(f"bits of {dtype}", item, (place, i))
        patterns.append(bits)
    return pack_bits(patterns, dtype)
