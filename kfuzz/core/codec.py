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
import struct
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
# Fields of these names count or measure something, in whatever they stand.
_FROM_ZERO: Final = frozenset(
    {
        "bursts", "cases", "cases_per_s", "conforming_cases", "count", "decided",
        "distance", "elapsed_s", "elements", "evaluations", "failed", "failing",
        "failures", "findings", "itemsize", "jobs", "kernels_done", "max_cases",
        "max_time", "once", "ratio", "runs", "screened", "sound", "startup_s", "strata",
        "structures", "undecided", "unsearched", "worst_ratio",
    }
)  # fmt: skip
# Formats that `struct` has.
_CODES: Final = {"float64": "d", "float32": "f", "float16": "e"}


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
        elif isinstance(value, Plant) and f.name == "bits":
            out[f.name] = hex(held)
        else:
            out[f.name] = encode(held)
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


def _exactly(kind: type, wanted: str) -> _Decoder:
    def read(data: Any, place: _Place) -> Any:
        if type(data) is not kind:
            raise _unlike(wanted, data, place)
        return data

    return read


def _decode_float(data: Any, place: _Place) -> float:
    if data in ("nan", "inf", "-inf"):
        return float(data)
    if not isinstance(data, int | float) or isinstance(data, bool):
        raise _unlike("a number", data, place)
    try:
        return float(data)
    except OverflowError:
        raise DecodeError("beyond the range of a float", where=_text(place)) from None


def _decode_shape_class(data: Any, place: _Place) -> ShapeClass:
    try:
        return ShapeClass.parse(data)
    except KfuzzError as error:
        raise DecodeError(error.what, where=_text(place)) from None


def _hex(data: Any, place: _Place) -> int:
    try:
        if isinstance(data, str) and data.startswith("0x"):
            return int(data, 16)
    except ValueError:
        pass
    raise _unlike("bit-hex", data, place)


_DECODERS: Final[dict[Any, _Decoder]] = {
    type(None): _exactly(type(None), "null"),
    bool: _exactly(bool, "true or false"),
    int: _exactly(int, "an integer"),
    float: _decode_float,
    str: _exactly(str, "a string"),
    ShapeClass: _decode_shape_class,
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
        return _sequence_decoder(_decoder(get_args(kind)[0]))
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_decoder(_decoder(get_args(kind)[1]))
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _enum_decoder(kind)
    if is_dataclass(kind):
        return _dataclass_decoder(kind)
    raise TypeError(f"no codec for {kind!r}")


def _union_decoder(options: tuple[Any, ...]) -> _Decoder:
    nullable = type(None) in options
    # Scalars are `bool | int | float`, or null: the first that fits keeps the JSON
    # type.
    *others, last = [_decoder(o) for o in options if o is not type(None)]

    def decode_union(data: Any, place: _Place) -> Any:
        if data is None and nullable:
            return None
        for option in others:
            with suppress(DecodeError):
                return option(data, place)
        return last(data, place)

    return decode_union


def _sequence_decoder(item: _Decoder) -> _Decoder:
    def decode_sequence(data: Any, place: _Place) -> Any:
        if not isinstance(data, list):
            raise _unlike("a list", data, place)
        return tuple([item(v, (place, i)) for i, v in enumerate(data)])

    return decode_sequence


def _mapping_decoder(item: _Decoder) -> _Decoder:
    def decode_mapping(data: Any, place: _Place) -> Any:
        if not isinstance(data, dict):
            raise _unlike("an object", data, place)
        return {k: item(v, (place, k)) for k, v in data.items()}

    return decode_mapping


def _enum_decoder(kind: type[StrEnum]) -> _Decoder:
    members = {str(m): m for m in kind}

    def decode_enum(data: Any, place: _Place) -> Any:
        if not isinstance(data, str) or data not in members:
            raise _unlike(f"one of {', '.join(members)}", data, place)
        return members[data]

    return decode_enum


def _dataclass_decoder(cls: Any) -> _Decoder:
    hints = typing.get_type_hints(cls)
    values_of = "values" if cls is TensorSpec else ""  # bytes: they have no codec
    parts = {
        f.name: _decoder(str if f.name == values_of else hints[f.name])
        for f in fields(cls)
    }
    if cls is Plant:
        parts["bits"] = _hex
    for name in parts.keys() & _FROM_ZERO:
        parts[name] = _from_zero(parts[name])
    required = {
        f.name
        for f in fields(cls)
        if f.default is MISSING and f.default_factory is MISSING
    }
    checked = callable(getattr(cls, "problem", None))

    def decode_dataclass(data: Any, place: _Place) -> Any:
        if not isinstance(data, dict):
            raise _unlike("an object", data, place)
        for key in data.keys() - parts.keys():
            raise _unlike(f"one of {', '.join(sorted(parts))}", key, place)
        values: dict[str, Any] = {}
        for name, part in parts.items():
            if name not in data:
                if name in required:
                    raise DecodeError("missing field", where=_text((place, name)))
            elif name == values_of:
                found, dtype = data["values"], data.get("dtype")
                values[name] = _decode_values(found, dtype, (place, name))
            else:
                values[name] = part(data[name], (place, name))
        if cls is Declaration:
            try:
                return Declaration().declare("", **values)
            except KfuzzError as error:
                where, fix = _text(place), error.fix
                raise DecodeError(error.what, where=where, fix=fix) from None
        made = cls(**values)
        if checked and (problem := made.problem()):
            raise DecodeError(problem, where=_text(place))
        return made

    return decode_dataclass


def _from_zero(part: _Decoder) -> _Decoder:
    def decode_from_zero(data: Any, place: _Place) -> Any:
        made = part(data, place)
        if isinstance(made, int | float) and made < 0:
            raise _unlike("a number from 0 on", data, place)
        return made

    return decode_from_zero


def _unlike(wanted: str, data: Any, place: _Place) -> DecodeError:
    shown = _SHORT.repr(data)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    what = f"expected {wanted}, found {shown}"
    return DecodeError(what, where=_text(place) or "document")


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


def _decode_values(data: Any, dtype: Any, place: _Place) -> bytes:
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise _unlike(f"one of {', '.join(DTYPES)}", dtype, (place[0], "dtype"))
    if isinstance(data, str):
        try:
            return base64.b64decode(data, validate=True)
        except ValueError as error:  # binascii.Error, or letters beyond ASCII
            raise DecodeError(f"bad base64: {error}", where=_text(place)) from None
    if not isinstance(data, list):
        raise _unlike("a list or base64", data, place)
    if (packed := _packed(data, dtype)) is not None:
        return packed
    limit = 1 << (8 * DTYPES[dtype].itemsize)
    patterns = []
    for i, item in enumerate(data):
        try:
            if isinstance(item, str):
                bits = _hex(item, (place, i))
            elif isinstance(item, int | float) and not isinstance(item, bool):
                bits = number_to_bits(item, dtype)
            else:
                raise _unlike("a number or bit-hex string", item, (place, i))
        except (ValueError, OverflowError):
            what = f"{item!r} is not a value of {dtype}"
            raise DecodeError(what, where=_text((place, i))) from None
        if bits >= limit:
            raise _unlike(f"bits of {dtype}", item, (place, i))
        patterns.append(bits)
    return pack_bits(patterns, dtype)


def _packed(data: list[Any], dtype: str) -> bytes | None:
    """Return the bytes of numbers that a dtype holds; None to look at each."""
    code = _CODES.get(dtype)
    if code is None or not all(type(item) is float for item in data):
        return None
    form = f"<{len(data)}{code}"
    try:
        raw = struct.pack(form, *data)
    except OverflowError:
        return None
    return raw if list(struct.unpack(form, raw)) == data else None
