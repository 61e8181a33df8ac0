"""Cases, values and places as text: what a person can read and type again."""

import math
import os
import struct
from collections import Counter
from pathlib import Path
from typing import Final

from kfuzz.core.dtypes import DTYPES, bits_to_number, canonical_nan, unpack_bits
from kfuzz.core.recipe import Case, Scalar, TensorSpec, is_dtype, unravel

# A reduced case has a handful of elements; about this many fit on two lines.
MAX_VALUES: Final = 24
# Longer tensors are drawn as "all a, except …" up to this many exceptions.
MAX_EXCEPTIONS: Final = 6
# Elements looked at for the value that most of them have.
MAX_SCANNED: Final = 1 << 16

# Significant digits that tell all values of a format apart (IEEE 754-2019 5.12.2:
# 1 + ceil(p log10 2) for a significand of p bits).
_DIGITS: Final = {
    "float64": 17, "float32": 9, "float16": 5, "bfloat16": 4,
    "float8_e5m2": 2, "float8_e4m3fn": 3,
}  # fmt: skip
# Integers up to here are easier to read with all their digits.
_PLAIN_BELOW: Final = 1e6
_PACKED: Final = {"float64": "<d", "float32": "<f", "float16": "<e"}


def plain(text: str) -> str:
    """Return text whose control characters are spelled out; newlines stay.

    Messages hold what kernels raise and corpora of strangers say: neither may
    drive the reader's terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode()
        for c in text
    )


def one_line(text: str) -> str:
    """Return text on one line, control characters spelled out."""
    return " ".join(plain(text).split())


def shown_path(path: str | Path) -> str:
    """Return a path relative to the working folder where it lies below it."""
    place = Path(os.path.abspath(path))
    here = Path.cwd()
    return str(place.relative_to(here) if place.is_relative_to(here) else path)


def number(value: float, dtype: str = "float64") -> str:
    """Return the fewest digits that name a value of a format.

    Args:
        value: a value of the format.
        dtype: a key of `DTYPES`.
    """
    if isinstance(value, int) or DTYPES[dtype].kind != "float":
        return str(int(value))
    if not math.isfinite(value):
        return str(value)
    if value and value == int(value) and abs(value) < _PLAIN_BELOW:
        return str(int(value))  # 20, not 2e+01
    most = _DIGITS[dtype]
    code = _PACKED.get(dtype)
    for digits in range(1, most + 1):
        text = f"{value:.{digits}g}"
        if _stored(float(text), code) == value:
            return text
    return f"{value:.{most}g}"


def _stored(value: float, code: str | None) -> float:
    if code is None:
        return value
    try:
        stored: float = struct.unpack(code, struct.pack(code, value))[0]
    except OverflowError:
        return math.inf
    return stored


def layout(spec: TensorSpec) -> str:
    """Return how the elements lie in memory, in elements."""
    text = "contiguous"
    if not spec.is_contiguous:
        text = f"strides {tuple_text(spec.element_strides)}"
    return f"{text}, offset {spec.offset}" if spec.offset else text


def tensor_head(name: str, spec: TensorSpec) -> str:
    """Return name, dtype, shape and layout: "x: float32[1, 3] contiguous"."""
    shape = ", ".join(map(str, spec.shape))
    return f"{one_line(name)}: {spec.dtype}[{shape}] {layout(spec)}"


def draw_tensor(name: str, spec: TensorSpec) -> str:
    """Return a tensor argument on one line, long ones elided."""
    return f"{tensor_head(name, spec)}{draw_values(spec)}"


def draw_values(spec: TensorSpec) -> str:
    """Return " = values", or ", filled with …" where a fill makes them."""
    if spec.values is None:
        fill = spec.fill
        text = f", filled with {fill.family} (seed {fill.seed})" if fill else ""
        plants = [
            f"[{', '.join(map(str, p.at))}] = {value_text(p.bits, spec.dtype)}"
            for p in spec.plants[:MAX_EXCEPTIONS]
        ]
        more = len(spec.plants) - len(plants)
        plants += [f"{more} more"] if more > 0 else []
        return one_line(text) + (f" except {', '.join(plants)}" if plants else "")
    if not spec.numel:
        return ", no element"
    if spec.numel <= MAX_VALUES:
        texts = [
            value_text(b, spec.dtype) for b in unpack_bits(spec.values, spec.dtype)
        ]
        return f" = {_nested(texts, spec.shape)}"
    return f" = {_long(spec, spec.values)}"


def draw_scalar(name: str, value: Scalar) -> str:
    """Return a scalar argument as Python would write it."""
    text = f"torch.{value}" if is_dtype(value) else repr(value)
    return f"{one_line(name)} = {text}"


def draw_case(case: Case) -> list[str]:
    """Return one line per argument."""
    tensors = [draw_tensor(name, spec) for name, spec in case.tensors.items()]
    return tensors + [draw_scalar(name, v) for name, v in case.scalars.items()]


def value_text(bits: int, dtype: str) -> str:
    """Return the element that raw bits stand for, in the fewest digits.

    A NaN with other than the default bits comes with its bits: "nan(0xffc00000)".
    """
    value = bits_to_number(bits, dtype)
    if dtype == "bool":
        return str(bool(value))
    if value != value and bits != canonical_nan(dtype):
        return f"nan({bits:#0{2 * DTYPES[dtype].itemsize + 2}x})"
    return number(value, dtype)


def _nested(texts: list[str], shape: tuple[int, ...]) -> str:
    if not shape:
        return texts[0]
    step = len(texts) // shape[0]
    parts = (texts[i * step : (i + 1) * step] for i in range(shape[0]))
    return f"[{', '.join(_nested(part, shape[1:]) for part in parts)}]"


def _long(spec: TensorSpec, values: bytes) -> str:
    size = DTYPES[spec.dtype].itemsize
    patterns = unpack_bits(values[: size * MAX_SCANNED], spec.dtype)
    usual = Counter(patterns).most_common(1)[0][0]
    places = [i for i, bits in enumerate(patterns) if bits != usual]
    if spec.numel <= MAX_SCANNED and len(places) <= MAX_EXCEPTIONS:
        text = f"{value_text(usual, spec.dtype)} everywhere"
        others = (
            f"[{', '.join(map(str, unravel(i, spec.shape)))}] = "
            f"{value_text(patterns[i], spec.dtype)}"
            for i in places
        )
        return text + (f" except {', '.join(others)}" if places else "")
    head = [value_text(b, spec.dtype) for b in patterns[:MAX_EXCEPTIONS]]
    last = value_text(unpack_bits(values[-size:], spec.dtype)[0], spec.dtype)
    return f"{', '.join(head)}, … , {last} ({spec.numel} values)"


def counted(n: int, noun: str) -> str:
    """Return "1 case", "2 cases"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def tuple_text(numbers: tuple[int, ...]) -> str:
    """Return "(1, 2)"; "(1)" for one."""
    return f"({', '.join(map(str, numbers))})"
