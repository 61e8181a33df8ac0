"""Element types: every narrow bit pattern against torch, wide ones against struct."""

import math

import numpy as np
import pytest
import torch

from kfuzz.core.dtypes import (
    DTYPES,
    bits_to_number,
    canonical_nan,
    number_to_bits,
)

NARROW = [name for name, d in DTYPES.items() if d.itemsize <= 2 and name != "bool"]


def torch_values(dtype: str) -> list[float | int]:
    """Return torch's reading of every bit pattern, in the order of the bits."""
    width = 8 * DTYPES[dtype].itemsize
    patterns = np.arange(1 << width, dtype=f"uint{width}").view(f"int{width}")
    tensor = torch.from_numpy(patterns).view(getattr(torch, dtype))
    wide = torch.float64 if DTYPES[dtype].kind == "float" else torch.int64
    values: list[float | int] = tensor.to(wide).tolist()
    return values


@pytest.mark.parametrize("dtype", NARROW)
def test_every_narrow_pattern_reads_as_in_torch(dtype: str) -> None:
    for bits, expected in enumerate(torch_values(dtype)):
        got = bits_to_number(bits, dtype)
        same = got == expected and math.copysign(1, got) == math.copysign(1, expected)
        assert same or (math.isnan(got) and math.isnan(expected)), hex(bits)


@pytest.mark.parametrize("dtype", NARROW)
def test_every_narrow_value_finds_its_pattern_again(dtype: str) -> None:
    for bits in range(1 << (8 * DTYPES[dtype].itemsize)):
        number = bits_to_number(bits, dtype)
        if math.isnan(number):
            assert number_to_bits(number, dtype) == canonical_nan(dtype)
        else:
            assert number_to_bits(number, dtype) == bits


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (65520.0, "float16"),
        (math.inf, "float8_e4m3fn"),
        (464.0, "float8_e4m3fn"),
        (128, "int8"),
        (2, "bool"),
        (2**63, "int64"),
    ],
)
def test_a_value_that_the_dtype_lacks_is_refused(value: float, dtype: str) -> None:
    with pytest.raises(ValueError, match=f"is not a value of {dtype}"):
        number_to_bits(value, dtype)
