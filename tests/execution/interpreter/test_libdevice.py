"""What libdevice's functions give in the interpreter, against exact results."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from triton.language.extra.cuda import libdevice

from kfuzz.execution.interpreter.libdevice import function_of

# What rounds towards an end, Bessel functions of order n, high halves, rare integers.
FORMLESS = re.compile(r"__nv_([fd]?(add|sub|mul|div|rcp|sqrt|maf?)|fmaf?)_r[zdu]|"
                      r"__nv_[jy]nf?|__nv_rcp64h|__nv_u?(mul24|sad|r?hadd)|"
                      r"__nv_urhadd|__nv_byte_perm|__nv_i?logbf?|"
                      r"__nv_\w+2(float|double)_r[zdu]")  # fmt: skip
SPREAD = np.concatenate(
    [np.linspace(-9, 9, 61), 2.0 ** np.arange(-30, 30, 3.0), [0.0, -0.0]]
).astype(np.float32)

# By symbol: the exact function, where it is defined, and the greatest error in ulp
# that CUDA's tables allow it in single precision.
EXACT: dict[str, tuple[Callable[[Any], Any], float, float, float]] = {
    "exp": (mpmath.exp, -80, 80, 1),
    "exp2": (lambda x: mpmath.mpf(2) ** x, -99, 99, 2),
    "exp10": (lambda x: mpmath.mpf(10) ** x, -30, 30, 2),
    "expm1": (mpmath.expm1, -80, 80, 1),
    "log": (mpmath.log, 1e-9, 1e9, 1),
    "log1p": (mpmath.log1p, -0.9, 1e9, 1),
    "log2": (lambda x: mpmath.log(x, 2), 1e-9, 1e9, 1),
    "tanh": (mpmath.tanh, -99, 99, 2),
    "sinh": (mpmath.sinh, -80, 80, 3),
    "asinh": (mpmath.asinh, -1e9, 1e9, 3),
    "atan": (mpmath.atan, -1e9, 1e9, 2),
    "sin": (mpmath.sin, -1e9, 1e9, 2),
    "tan": (mpmath.tan, -1e9, 1e9, 4),
    "sinpi": (mpmath.sinpi, -1e6, 1e6, 1),
    "cospi": (mpmath.cospi, -1e6, 1e6, 1),
    "rsqrt": (lambda x: 1 / mpmath.sqrt(x), 1e-9, 1e9, 2),
    "cbrt": (lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), -1e9, 1e9, 1),
    "erf": (mpmath.erf, -9, 9, 2),
    "erfc": (mpmath.erfc, -9, 9, 4),
    "erfinv": (mpmath.erfinv, -0.999, 0.999, 2),
    "normcdf": (mpmath.ncdf, -9, 9, 5),
    "lgamma": (mpmath.loggamma, 1e-9, 1e9, 6),
    "tgamma": (mpmath.gamma, 1e-3, 30, 5),
    "cyl_bessel_i0": (lambda x: mpmath.besseli(0, x), -9, 9, 6),
}


@pytest.mark.parametrize("name", EXACT)
def test_results_lie_within_the_tables_of_cuda(name: str) -> None:
    exact, low, high, ulps = EXACT[name]
    x = SPREAD[(low < SPREAD) & (high > SPREAD)]
    single, double = function_of(f"__nv_{name}f"), function_of(f"__nv_{name}")
    assert single is not None
    assert double is not None
    got = single(x).astype(np.float32)
    also = double(x.astype(np.float64))
    for value, result, wide in zip(x, got, also, strict=True):
        wanted = exact(mpmath.mpf(float(value)))
        assert (
            abs(mpmath.mpf(float(result)) - wanted)
            <= ulps * math.ulp(float(wanted)) * 2**29
        ), (name, value)
        assert abs(mpmath.mpf(float(wide)) - wanted) <= max(
            abs(wanted) * mpmath.mpf(2) ** -40, mpmath.mpf(10) ** -300
        )


def test_every_symbol_that_triton_declares_is_there_or_named() -> None:
    text = Path(libdevice.__file__).read_text()
    symbols = set(re.findall(r'"(__nv_\w+)"', text))
    assert len(symbols) > 300
    left = {s for s in symbols if function_of(s) is None}
    assert {s for s in left if not FORMLESS.fullmatch(s)} == set()


@pytest.mark.parametrize(
    ("symbol", "operands", "wanted"),
    [
        ("clz", [np.int32([1, 0, -1])], [31, 32, 0]),
        ("popc", [np.int32([7, 0, -1])], [3, 0, 32]),
        ("ffs", [np.int32([8, 0, -1])], [4, 0, 1]),
        ("brev", [np.int32([1, -1])], [-(2**31), -1]),
        ("mulhi", [np.int32([2**30, -1]), np.int32([8, 1])], [2, -1]),
        ("umulhi", [np.uint32([2**32 - 1]), np.uint32([2])], [1]),
        ("float2int_rn", [np.float32([2.5, 3e9, np.nan])], [2, 2**31 - 1, 0]),
        ("float2int_ru", [np.float32([2.1])], [3]),
        ("float2uint_rz", [np.float32([-1.0, 5e9])], [0, 2**32 - 1]),
        ("float_as_int", [np.float32([1.0])], [0x3F800000]),
        ("hiloint2double", [np.int32([0x3FF00000]), np.int32([0])], [1.0]),
        ("roundf", [np.float32([0.5, -2.5, 0.49999997])], [1, -3, 0]),
        ("rintf", [np.float32([0.5, 1.5])], [0, 2]),
        ("fdimf", [np.float32([3, 1]), np.float32([1, 3])], [2, 0]),
        ("saturatef", [np.float32([2, -1, np.nan])], [1, 0, 0]),
        ("fmodf", [np.float32([-5]), np.float32([3])], [-2]),
        ("remainderf", [np.float32([5]), np.float32([3])], [-1]),
        ("ldexpf", [np.float32([3]), np.int32([4])], [48]),
        ("powif", [np.float32([-2]), np.int32([3])], [-8]),
        ("fma", [np.float64([1 + 2.0**-52]), np.float64([1 - 2.0**-52]),
                 np.float64([-1])], [-(2.0**-104)]),
    ],
)  # fmt: skip
def test_integers_bits_and_roundings_are_exact(
    symbol: str, operands: list[Any], wanted: list[float]
) -> None:
    function = function_of(f"__nv_{symbol}")
    assert function is not None
    assert np.asarray(function(*operands)).tolist() == wanted
