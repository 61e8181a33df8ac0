"""The safetensors file format, read and written with the standard library.

Format: https://github.com/huggingface/safetensors#format (8 bytes little-endian
length, a JSON header, raw little-endian elements in C order). Its package takes
raw pointers in one version and dictionaries in another, and reports no field.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import DecodeError
from kfuzz.store import strict_json

_CODES: Final = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3", "int64": "I64",
    "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
_NAMES: Final = {code: name for name, code in _CODES.items()}
# The format pads its header so that the elements are aligned.
_ALIGNMENT: Final = 8
_METADATA: Final = "__metadata__"


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file.

    Attributes:
        dtype: a key of `DTYPES`.
        shape: logical sizes.
        data: raw little-endian elements in C order.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def dump(tensors: Mapping[str, StoredTensor]) -> bytes:
    """Return the file that holds the named tensors, in the order given.

    Raises:
        ValueError: on a dtype that the format lacks.
    """
    header: dict[str, Any] = {}
    offset = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in _CODES:
            raise ValueError(f"safetensors has no dtype {tensor.dtype!r}")
        end = offset + len(tensor.data)
        header[name] = {
            "dtype": _CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    body = b"".join(tensor.data for tensor in tensors.values())
    return len(text).to_bytes(8, "little") + text + body


def load(data: bytes, *, where: str = "") -> dict[str, StoredTensor]:
    """Read all tensors of a file.

    Raises:
        DecodeError: if header, offsets and length do not fit one another.
    """
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > len(data) - 8:
        raise DecodeError("truncated: the header is incomplete", where=where)
    header = strict_json.loads(data[8 : 8 + size], where=f"{where}: header")
    if not isinstance(header, dict):
        raise DecodeError("the header is not an object", where=where)
    header.pop(_METADATA, None)
    body = memoryview(data)[8 + size :]
    tensors, used = {}, 0
    for name, entry in header.items():
        tensor, end = _tensor(entry, body, f"{where}: header.{name}")
        tensors[name] = tensor
        used = max(used, end)
    if used != len(body):
        raise DecodeError(f"{len(body) - used} bytes belong to no tensor", where=where)
    return tensors


def _tensor(entry: Any, body: memoryview, where: str) -> tuple[StoredTensor, int]:
    if not isinstance(entry, dict):
        raise DecodeError("not an object", where=where)
    code = entry.get("dtype")
    if not isinstance(code, str) or code not in _NAMES:
        raise DecodeError(f"unknown dtype {code!r:.40}", where=f"{where}.dtype")
    shape, span = entry.get("shape"), entry.get("data_offsets")
    if not _sizes(shape):
        raise DecodeError("not a list of sizes", where=f"{where}.shape")
    if not _sizes(span) or len(span) != 2 or span[0] > span[1]:
        raise DecodeError("not two offsets", where=f"{where}.data_offsets")
    start, end = span
    if end > len(body):
        raise DecodeError(
            f"truncated: needs {end} bytes of elements, the file holds {len(body)}",
            where=f"{where}.data_offsets",
        )
    want = math.prod(shape) * DTYPES[_NAMES[code]].itemsize
    if end - start != want:
        raise DecodeError(
            f"{end - start} bytes, the shape {shape} needs {want}",
            where=f"{where}.data_offsets",
        )
    return StoredTensor(_NAMES[code], tuple(shape), bytes(body[start:end])), end


def _sizes(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(
        isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value
    )
