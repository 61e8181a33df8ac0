"""What is asked of CUDA and of HIP, by libraries that only pretend."""

import ctypes

import pytest

from kfuzz.core.verdict import ILLEGAL_ADDRESS
from kfuzz.cuda.driver import (
    Access,
    Properties,
)
from kfuzz.execution.device.backends import fault_name


def test_structures_are_laid_out_as_in_the_headers():
    # Two enumerations, a location of two ints, a pointer, then flags.
    assert ctypes.sizeof(Properties) == 32
    assert Properties.location.offset == 8
    assert Properties.metadata.offset == 16
    assert (ctypes.sizeof(Access), Access.flags.offset) == (12, 8)


class _Numbered(RuntimeError):
    error_code = 700


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (_Numbered("whatever it says"), ILLEGAL_ADDRESS),
        (
            RuntimeError("CUDA error: an illegal memory access was encountered\nMore"),
            ILLEGAL_ADDRESS,
        ),
        (RuntimeError("CUDA error: device-side assert triggered"), "assert"),
        (RuntimeError("CUDA error: misaligned address"), "misaligned_address"),
        (RuntimeError("CUDA error: unspecified launch failure"), "launch_failure"),
        (RuntimeError("something else"), "device_error"),
    ],
)
def test_a_fault_has_the_name_that_the_device_gives_it(error, name):
    assert fault_name(error) == name
