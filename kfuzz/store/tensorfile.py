"""Tensors as safetensors files: https://github.com/huggingface/safetensors#format.

The library reads them; it writes by raw pointers, so the few lines of that are here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kfuzz.core.errors import DecodeError

_CODES: Final = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3", "int64": "I64",
    "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
_NAMES: Final = {code: name for name, code in _CODES.items()}
# The format pads its header so that the elements are aligned.
_ALIGNMENT: Final = 8


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
    """Return the file that holds the named tensors, in the order given."""
    header: dict[str, Any] = {}
    offset = 0
    for name, tensor in tensors.items():
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
    from safetensors import SafetensorError, deserialize

    try:
        return {
            name: StoredTensor(
                _NAMES[entry["dtype"]], tuple(entry["shape"]), bytes(entry["data"])
            )
            for name, entry in deserialize(data)  # type: ignore[no-untyped-call]
        }
    except SafetensorError as error:
        raise DecodeError(f"no safetensors file: {error}", where=where) from None
    except KeyError as error:
        raise DecodeError(f"unknown dtype {error}", where=where) from None
