"""CUDA's device functions (libdevice) in Triton's interpreter, which has none.

What `triton.language.extra.cuda.libdevice` declares (names, types, results) holds as
compiled; here is what the symbols behind it compute. A function of float32 is computed
in float64 and rounded once, one of float64 by the C library's or torch's: within the
greatest errors that CUDA documents (CUDA C++ Programming Guide, "Mathematical
Functions", tables of single and double precision), mostly far within. So are `fast_`
functions, whose errors on a GPU are greater. A symbol that is not here (arithmetic and
conversions to floats that round towards an end, Bessel functions of order n, averages
and products of 24 bits, permutations of bytes) is named, and its kernel not judged.
"""

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

import numpy as np
import torch

from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.interpreter.language import NoForm
from kfuzz.execution.interpreter.programs import array, elementwise, one_by_one

Function = Callable[..., Any]

_no_dispatch: Final = torch._C._DisableTorchDispatch
_PREFIX: Final = "__nv_"
_ROUNDED: Final = re.compile(r"([fd]?)(add|sub|mul|div|rcp|sqrt|rsqrt|fmaf?)_rn")
_CONVERTED: Final = re.compile(r"(double|float|u?int|u?ll)2(double|float|u?int|u?ll)")
_TYPES: Final = {
    "double": np.float64, "float": np.float32, "int": np.int32, "uint": np.uint32,
    "ll": np.int64, "ull": np.uint64,
}  # fmt: skip


def install(module: Any, patches: Patches) -> None:
    """Have the interpreter compute calls of libdevice until the patches are undone."""
    handle = module.TensorHandle

    def create_extern_elementwise(
        builder: Any, library: str, path: str, symbol: str,
        operands: list[Any], result: Any, is_pure: bool,
    ) -> Any:  # fmt: skip
        function = function_of(symbol)
        if function is None:
            raise NoForm(
                f"libdevice's {symbol} has no form in Triton's interpreter, "
                "run on a GPU"
            )
        data = function(*(operand.data for operand in operands))
        wanted = module._get_np_dtype(result.scalar)
        return handle(array(data).astype(wanted), result.scalar)

    patches.set(
        module.InterpreterBuilder,
        "create_extern_elementwise",
        create_extern_elementwise,
    )
    # Triton's own is Python's, for one element after the other.
    erf = _real(_REAL["erf"])
    patches.set(module, "np_erf_fp32", lambda x: erf(x).astype(np.float32))
    patches.set(module, "np_erf_fp64", erf)


def function_of(symbol: str) -> Function | None:
    """Return what a symbol of libdevice computes, None for one that is not here.

    Args:
        symbol: such as "__nv_tanhf".

    Returns:
        A function of NumPy arrays of the types that the symbol takes; the types of its
        results may be wider than the symbol's.
    """
    name = symbol.removeprefix(_PREFIX)
    if name in _AS_GIVEN:
        return _AS_GIVEN[name]
    if rounded := _ROUNDED.fullmatch(name):
        return _real(_ARITHMETIC[rounded[2].removesuffix("f")])
    if converted := _CONVERTED.match(name):
        return _conversion(converted[1], converted[2], name[converted.end() :])
    name = name.removeprefix("fast_")
    for known in (name, name.removesuffix("f")):
        if known in _REAL:
            return _real(_REAL[known])
    return None


def _real(function: Function) -> Function:
    """Compute in float64; the interpreter rounds to the type of the result."""

    def computed(*operands: Any) -> Any:
        # A second operand may be a number of times or places.
        wide = (o.astype(np.float64) if o.dtype.kind == "f" else o for o in operands)
        return function(*wide)

    return computed


def _of_torch(function: Function) -> Function:
    """Compute by a function of torch's, unseen by what watches a kernel's calls."""

    def computed(*operands: Any) -> Any:
        with _no_dispatch():
            given = (torch.from_numpy(np.array(o, np.float64)) for o in operands)
            return function(*given).numpy()

    return one_by_one(computed)  # its vectors end in scalars, which may differ


def _each(function: Callable[..., float], at_pole: float = math.nan) -> Function:
    """Compute by a function of Python's, element by element."""

    def guarded(*operands: float) -> float:
        try:
            return function(*operands)
        except OverflowError:
            return math.inf
        except ValueError:
            return at_pole

    return elementwise(np.vectorize(guarded, otypes=[np.float64]))


def _sinpi(x: Any) -> Any:
    """Return sin(pi x), reduced exactly."""
    turn = x - 2 * np.rint(x / 2)
    half = np.copysign(1.0, turn) - turn
    return np.sin(math.pi * np.where(np.abs(turn) > 0.5, half, turn))


def _away_from_zero(x: Any) -> Any:
    whole = np.trunc(x)
    return whole + np.copysign(np.abs(x - whole) >= 0.5, x)


def _gamma(x: Any) -> Any:
    found = _each(math.gamma)(x)
    return np.where(x == 0, np.copysign(np.inf, x), found)


def _norm(*operands: Any) -> Any:
    total = operands[0]
    for operand in operands[1:]:
        total = np.hypot(total, operand)
    return np.abs(total)


def _fused(x: float, y: float, z: float) -> float:
    if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(z)):
        return x * y + z
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    return float(exact) if exact else x * y + z  # which has the right sign of zero


_SQRT_HALF: Final = math.sqrt(0.5)

# Real functions of libdevice, by their names without the "f" of single precision.
_REAL: Final[dict[str, Function]] = {
    **{
        name: getattr(np, name)
        for name in (
            "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos",
            "tan", "sinh", "cosh", "tanh", "hypot", "sqrt", "cbrt", "floor", "ceil",
            "trunc", "rint", "copysign", "fmod", "ldexp", "fabs",
        )
    },
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "exp10": lambda x: np.power(10.0, x),
    "sinpi": _sinpi,
    "cospi": lambda x: np.sin(math.pi * (0.5 - np.abs(x - 2 * np.rint(x / 2)))),
    "pow": np.power, "powi": lambda x, n: np.power(x, n.astype(np.float64)),
    "fdivide": np.divide,
    "rsqrt": lambda x: 1 / np.sqrt(x), "rcbrt": lambda x: 1 / np.cbrt(x),
    "rhypot": lambda x, y: 1 / np.hypot(x, y),
    "norm3d": _norm, "norm4d": _norm,
    "rnorm3d": lambda *x: 1 / _norm(*x), "rnorm4d": lambda *x: 1 / _norm(*x),
    "erf": _of_torch(torch.special.erf), "erfc": _of_torch(torch.special.erfc),
    "erfcx": _of_torch(torch.special.erfcx), "erfinv": _of_torch(torch.special.erfinv),
    "erfcinv": _of_torch(lambda x: -_SQRT_HALF * torch.special.ndtri(x / 2)),
    "normcdf": _of_torch(lambda x: torch.special.erfc(-_SQRT_HALF * x) / 2),
    "normcdfinv": _of_torch(torch.special.ndtri),
    "lgamma": _of_torch(torch.special.gammaln), "tgamma": _gamma,
    "j0": _of_torch(torch.special.bessel_j0), "j1": _of_torch(torch.special.bessel_j1),
    "y0": _of_torch(torch.special.bessel_y0), "y1": _of_torch(torch.special.bessel_y1),
    "cyl_bessel_i0": _of_torch(torch.special.i0),
    "cyl_bessel_i1": _of_torch(torch.special.i1),
    "nearbyint": np.rint, "round": _away_from_zero,
    "scalbn": np.ldexp, "remainder": _each(math.remainder),
    "fma": _each(_fused), "fdim": lambda x, y: np.where(x <= y, 0.0, x - y),
    "saturate": lambda x: np.where(np.isnan(x), 0.0, np.clip(x, 0.0, 1.0)),
}  # fmt: skip

_ARITHMETIC: Final[dict[str, Function]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "rcp": lambda x: 1 / x, "sqrt": np.sqrt, "rsqrt": _REAL["rsqrt"],
    "fma": _REAL["fma"],
}  # fmt: skip

_TO_WHOLE: Final = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}


def _conversion(source: str, target: str, mode: str) -> Function | None:
    """Return a conversion; `mode` is such as "_rn", or "" for the nearest."""
    mode = mode.removeprefix("_") or "rn"
    into = _TYPES.get(target)
    if into is None or mode not in _TO_WHOLE:
        return None
    if np.dtype(into).kind != "f":
        return lambda x: _saturated(_TO_WHOLE[mode](x.astype(np.float64)), into)
    return (lambda x: x.astype(into)) if mode == "rn" else None


def _saturated(whole: Any, into: Any) -> Any:
    """Convert whole numbers; what is too large becomes the nearest, NaN 0.

    In 64 bits NaN becomes 2^63, as PTX's `cvt` says.
    """
    ends = np.iinfo(into)
    high, low = whole >= float(ends.max), whole <= float(ends.min)
    inside = np.where(high | low | np.isnan(whole), 0, whole).astype(into)
    nan = into(0) if ends.bits == 32 else np.uint64(1 << 63).astype(into)
    result = np.where(high, ends.max, np.where(low, ends.min, inside))
    return np.where(np.isnan(whole), nan, result).astype(into)


def _bits(function: Callable[[int, int], int]) -> Function:
    """Compute on the bits of each integer: function(bits, how many there are)."""

    def computed(x: Any) -> Any:
        unsigned = np.dtype(f"u{x.itemsize}")
        wide = 8 * x.itemsize
        made = [function(int(n), wide) for n in x.view(unsigned).ravel()]
        return np.array(made, unsigned).reshape(x.shape).view(x.dtype)

    return elementwise(computed)


def _exact(function: Function) -> Function:
    """Compute on unlimited integers, and keep the low bits of the result."""

    def computed(*operands: Any) -> Any:
        kind = operands[0].dtype
        modulus = 1 << 8 * kind.itemsize
        result = np.asarray(function(*(o.astype(object) for o in operands)))
        unsigned = np.dtype(f"u{kind.itemsize}")
        return (result % modulus).astype(unsigned).view(kind)

    return elementwise(computed)


def _high(wide: int) -> Function:
    return _exact(lambda x, y: (x * y) >> wide)


_clz: Final = _bits(lambda bits, wide: wide - bits.bit_length())
_popc: Final = _bits(lambda bits, wide: bits.bit_count())
_ffs: Final = _bits(lambda bits, wide: (bits & -bits).bit_length())
_brev: Final = _bits(lambda bits, wide: int(f"{bits:0{wide}b}"[::-1], 2))

# By their names without "__nv_": what is computed in the operands' own types.
_AS_GIVEN: Final[dict[str, Function]] = {
    "clz": _clz, "clzll": _clz, "popc": _popc, "popcll": _popc,
    "ffs": _ffs, "ffsll": _ffs, "brev": _brev, "brevll": _brev,
    "mulhi": _high(32), "umulhi": _high(32),
    "mul64hi": _high(64), "umul64hi": _high(64),
    "abs": np.abs, "llabs": np.abs,
    "nextafterf": np.nextafter, "nextafter": np.nextafter,
    "isnanf": np.isnan, "isnand": np.isnan, "isinff": np.isinf, "isinfd": np.isinf,
    "finitef": np.isfinite, "isfinited": np.isfinite,
    "signbitf": np.signbit, "signbitd": np.signbit,
    "llrintf": lambda x: _saturated(np.rint(x), np.int64),
    "llrint": lambda x: _saturated(np.rint(x), np.int64),
    "llroundf": lambda x: _saturated(
        _away_from_zero(x.astype(np.float64)), np.int64
    ),
    "llround": lambda x: _saturated(_away_from_zero(x), np.int64),
    "int_as_float": lambda x: x.view(np.float32),
    "uint_as_float": lambda x: x.view(np.float32),
    "float_as_int": lambda x: x.view(np.int32),
    "float_as_uint": lambda x: x.view(np.uint32),
    "longlong_as_double": lambda x: x.view(np.float64),
    "double_as_longlong": lambda x: x.view(np.int64),
    "double2loint": lambda x: x.view(np.int64).astype(np.int32),
    "double2hiint": lambda x: (x.view(np.int64) >> 32).astype(np.int32),
    "hiloint2double": lambda high, low: (
        high.astype(np.int64) << 32 | low.astype(np.int64) & 0xFFFFFFFF
    ).view(np.float64),
}  # fmt: skip
