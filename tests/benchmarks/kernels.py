"""Correct kernels of four operators, and twenty-two with one fault each.

Row kernels take float32 arrays [rows, n] that hold the data exactly, and the data
type; matrix kernels [cases, M, K] and [cases, K, N]. They return what is stored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kfuzz.numerics.formats import FORMATS, round_to
from tests.benchmarks.rows import Config
from tests.helpers import correct_algorithms
from tests.helpers.correct_algorithms import (
    exp2_reciprocal,
    lanes,
    online_32,
    pairwise,
    primitive,
    serial,
    serial_k,
    two_pass,
    welford,
)

F32 = NDArray[np.float32]
Array = NDArray[Any]
Kernel = Callable[[Config], Tensor]
EPS: Final = np.float32(1e-5)
# Tile of the online softmax, parts of a split sum.
TILE: Final = 32
PARTS: Final = 4


@dataclass(frozen=True)
class Mutant:
    """One kernel with a fault.

    Attributes:
        operator: what it was to compute.
        fault: in words.
        run: the kernel.
        found: configurations of the full table in which some family shows it; fewer
            are a loss of power.
        dtypes: data types for which it differs from the correct kernels.
    """

    operator: str
    fault: str
    run: Kernel
    found: int
    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16")


def stored(y: Array, config: Config, shape: tuple[int, ...]) -> Tensor:
    """Round to the data's format, once."""
    wide = torch.from_numpy(np.ascontiguousarray(y).astype(np.float64))
    return round_to(wide, FORMATS[config.dtype]).reshape(shape)


def half_of(config: Config) -> torch.dtype:
    """Return the 16-bit type that a careless kernel computes in."""
    return torch.bfloat16 if config.dtype == "bfloat16" else torch.float16


def serial_in(x: Tensor) -> Tensor:
    """Add along the last axis from the first to the last, in x's own type."""
    total = torch.zeros(x.shape[:-1], dtype=x.dtype)
    for j in range(x.shape[-1]):
        total = total + x[..., j]
    return total


def flushed(x: Array, config: Config) -> Array:
    """Replace subnormal numbers of the data's format by zero."""
    least = FORMATS[config.dtype].min_normal
    return np.where(np.abs(x) < least, np.float32(0), x).astype(x.dtype)


# --- rows ---------------------------------------------------------------------


def _rows(config: Config) -> F32:
    x = config.tensors["x"].to(torch.float32).numpy()
    return x.reshape(-1, x.shape[-1])


def sums(f: Callable[[F32, Config], Array]) -> Kernel:
    """Make a kernel out of a sum over rows."""

    def run(config: Config) -> Tensor:
        shape = tuple(config.tensors["x"].shape[:-1])
        return stored(f(_rows(config), config), config, shape)

    return run


def maps(f: Callable[[F32, Config], Array]) -> Kernel:
    """Make a kernel out of a function of rows."""

    def run(config: Config) -> Tensor:
        shape = tuple(config.tensors["x"].shape)
        return stored(f(_rows(config), config), config, shape)

    return run


def affine(f: Callable[[F32, F32, F32, Config], Array]) -> Kernel:
    """Make a kernel out of a function of rows, weights and biases."""

    def run(config: Config) -> Tensor:
        x = config.tensors["x"]
        g, b = (
            config.tensors[n].to(torch.float32)[:, None].expand(x.shape)
            for n in ("weight", "bias")
        )
        flat = [t.reshape(-1, x.shape[-1]).numpy() for t in (g, b)]
        return stored(f(_rows(config), *flat, config), config, tuple(x.shape))

    return run


def each(f: Callable[..., Tensor]) -> Kernel:
    """Make a kernel of one that is called for each case, in the data's type."""

    def run(config: Config) -> Tensor:
        made = [f(*case) for case in zip(*config.tensors.values(), strict=True)]
        return torch.stack(made).to(torch.float64)

    return run


def _half_accumulator(x: F32, config: Config) -> Array:
    return serial_in(torch.from_numpy(x).to(half_of(config))).float().numpy()


def _no_maximum(x: F32, config: Config) -> Array:
    weight = np.exp(x)
    return weight / serial(weight)[:, None]


def _tail_of_total(x: F32, config: Config) -> Array:
    weight = np.exp(x - x.max(-1, keepdims=True))
    return weight / serial(weight[:, :-1])[:, None]


def _half_softmax(x: F32, config: Config) -> Array:
    t = torch.from_numpy(x).to(half_of(config))
    weight = torch.exp(t - t.amax(-1, keepdim=True))
    return (weight / serial_in(weight)[:, None]).float().numpy()


def _no_rescale(x: F32, config: Config) -> Array:
    top = np.full(x.shape[0], -np.inf, dtype=np.float32)
    total = np.zeros(x.shape[0], dtype=np.float32)
    for start in range(0, x.shape[1], TILE):
        block = x[:, start : start + TILE]
        top = np.maximum(top, block.max(-1))
        total = total + serial(np.exp(block - top[:, None]))
    return np.exp(x - top[:, None]) / total[:, None]


def _swallowed(x: F32, config: Config) -> Array:
    return np.nan_to_num(primitive(x), nan=0.0, posinf=np.inf, neginf=-np.inf)


def _flushing_softmax(x: F32, config: Config) -> Array:
    return flushed(primitive(x), config)


def _normalised(
    x: F32, g: F32, b: F32, mean: Array, root: Array
) -> Array:  # root: 1 / sqrt
    return (x - mean[:, None]) * root[:, None] * g + b


def _root(v: Array) -> Array:
    return np.float32(1) / np.sqrt(v + EPS)


def _variance(x: F32, mean: Array) -> Array:
    d = x - mean[:, None]
    return serial(d * d) / np.float32(x.shape[1])


def _mean(x: F32) -> Array:
    return serial(x) / np.float32(x.shape[1])


def _one_pass(x: F32, g: F32, b: F32, config: Config) -> Array:
    mean = _mean(x)
    return _normalised(x, g, b, mean, _root(_mean(x * x) - mean * mean))


def _one_pass_clamped(x: F32, g: F32, b: F32, config: Config) -> Array:
    mean = _mean(x)
    v = np.maximum(_mean(x * x) - mean * mean, np.float32(0))
    return _normalised(x, g, b, mean, _root(v))


def _tail_of_moments(x: F32, g: F32, b: F32, config: Config) -> Array:
    n = np.float32(x.shape[1])
    mean = serial(x[:, :-1]) / n
    d = x[:, :-1] - mean[:, None]
    return _normalised(x, g, b, mean, _root(serial(d * d) / n))


def _unbiased(x: F32, g: F32, b: F32, config: Config) -> Array:
    mean = _mean(x)
    n = x.shape[1]
    v = _variance(x, mean) * np.float32(n) / np.float32(n - 1)
    return _normalised(x, g, b, mean, _root(v))


def _eps_outside(x: F32, g: F32, b: F32, config: Config) -> Array:
    mean = _mean(x)
    root = np.float32(1) / (np.sqrt(_variance(x, mean)) + EPS)
    return _normalised(x, g, b, mean, root)


def _half_moments(x: F32, g: F32, b: F32, config: Config) -> Array:
    t = torch.from_numpy(x).to(half_of(config))
    mean = serial_in(t) / x.shape[1]
    d = t - mean[:, None]
    v = (serial_in(d * d) / x.shape[1]).float().numpy()
    return _normalised(x, g, b, mean.float().numpy(), _root(v))


def _flushing_norm(x: F32, g: F32, b: F32, config: Config) -> Array:
    y = two_pass(flushed(x, config), g, b, float(EPS))
    return flushed(y, config)


# --- matrices -----------------------------------------------------------------


def product(f: Callable[[F32, F32, Config], Array]) -> Kernel:
    """Make a kernel out of a function of float32 matrices, all cases at once."""

    def run(config: Config) -> Tensor:
        a, b = (t.to(torch.float32).numpy() for t in config.tensors.values())
        return stored(f(a, b, config), config, (a.shape[0], a.shape[1], b.shape[2]))

    return run


def _parts(a: F32, b: F32) -> Array:
    step = max(1, -(-a.shape[2] // PARTS))
    starts = range(0, a.shape[2], step)
    made = [serial_k(a[:, :, s : s + step], b[:, s : s + step]) for s in starts]
    return np.stack(made, -1)


def tensor_core(fraction: int, block: int) -> Kernel:
    """Emulate a truncating matrix unit: see `correct_algorithms.tensor_core`."""
    multiply = correct_algorithms.tensor_core(fraction, block)
    return product(lambda a, b, config: multiply(a, b))


def _half_products(a: F32, b: F32, config: Config) -> Array:
    x, y = (torch.from_numpy(t) for t in (a, b))
    total = torch.zeros(a.shape[0], a.shape[1], b.shape[2], dtype=half_of(config))
    for k in range(a.shape[2]):
        # The sum is rounded once, as a fused operation does.
        total = (total.float() + x[:, :, k, None] * y[:, k, None]).to(total.dtype)
    return total.float().numpy()


def _half_parts(a: F32, b: F32, config: Config) -> Array:
    made = torch.from_numpy(_parts(a, b)).to(half_of(config))
    return serial_in(made).float().numpy()


def _tf32(a: F32, b: F32, config: Config) -> Array:
    coarse = [
        round_to(torch.from_numpy(t).double(), FORMATS["tf32"]).float().numpy()
        for t in (a, b)
    ]
    return serial_k(*coarse)


def _flushing_product(a: F32, b: F32, config: Config) -> Array:
    return flushed(serial_k(flushed(a, config), flushed(b, config)), config)


def _torch_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, float(EPS))


CORRECT: Final[Mapping[str, Mapping[str, Kernel]]] = {
    "sum": {
        "torch.sum": each(lambda x: torch.sum(x, -1)),
        "serial": sums(lambda x, c: serial(x)),
        "128 lanes": sums(lambda x, c: lanes(x)),
    },
    "softmax": {
        "torch.softmax": each(lambda x: torch.softmax(x, -1)),
        "primitive": maps(lambda x, c: primitive(x)),
        "exp2": maps(lambda x, c: exp2_reciprocal(x)),
        "online": maps(lambda x, c: online_32(x)),
    },
    "layer_norm": {
        "torch layer_norm": each(_torch_norm),
        "two-pass": affine(lambda x, g, b, c: two_pass(x, g, b, float(EPS))),
        "Welford": affine(lambda x, g, b, c: welford(x, g, b, float(EPS))),
    },
    "matmul": {
        "torch.matmul": each(torch.matmul),
        "serial": product(lambda a, b, c: serial_k(a, b)),
        "split-K": product(lambda a, b, c: pairwise(_parts(a, b))),
    },
}
# Matrix units of 16-bit operands: Volta, Ampere and Hopper.
CORES: Final[Mapping[str, Kernel]] = {
    "V100 unit": tensor_core(23, 4),
    "A100 unit": tensor_core(24, 8),
    "H100 unit": tensor_core(25, 16),
}


def correct_of(config: Config) -> dict[str, Kernel]:
    """Return the correct kernels of a configuration."""
    made = dict(CORRECT[config.operator])
    if config.operator == "matmul" and config.dtype != "float32":
        made.update(CORES)
    return made


MUTANTS: Final = (
    Mutant("sum", "16-bit accumulator", sums(_half_accumulator), 47),
    Mutant("sum", "missing tail element", sums(lambda x, c: serial(x[:, :-1])), 51),
    Mutant(
        "sum", "tail counted twice",
        sums(lambda x, c: serial(np.concatenate([x, x[:, -1:]], 1))), 51,
    ),
    Mutant(
        "sum", "flush to zero",
        sums(lambda x, c: flushed(serial(flushed(x, c)), c)), 51,
    ),
    Mutant("softmax", "no maximum subtracted", maps(_no_maximum), 51),
    Mutant("softmax", "missing tail in the total", maps(_tail_of_total), 51),
    Mutant("softmax", "computed in 16 bits", maps(_half_softmax), 49),
    Mutant("softmax", "online, no rescaling", maps(_no_rescale), 33),
    Mutant("softmax", "NaN becomes 0", maps(_swallowed), 51),
    Mutant("softmax", "flush to zero", maps(_flushing_softmax), 16, ("float16",)),
    Mutant("layer_norm", "one-pass variance", affine(_one_pass), 33),
    Mutant("layer_norm", "one-pass, clamped", affine(_one_pass_clamped), 26),
    Mutant("layer_norm", "missing tail", affine(_tail_of_moments), 51),
    Mutant("layer_norm", "unbiased variance", affine(_unbiased), 42),
    Mutant("layer_norm", "eps outside the root", affine(_eps_outside), 48),
    Mutant("layer_norm", "16-bit moments", affine(_half_moments), 49),
    Mutant("layer_norm", "flush to zero", affine(_flushing_norm), 16, ("float16",)),
    Mutant("matmul", "16-bit accumulator", product(_half_products), 40),
    Mutant(
        "matmul", "missing K tail",
        product(lambda a, b, c: serial_k(a[:, :, :-1], b[:, :-1])), 42,
    ),
    Mutant("matmul", "split-K, 16-bit parts", product(_half_parts), 40),
    Mutant("matmul", "TF32 operands", product(_tf32), 14, ("float32",)),
    Mutant("matmul", "flush to zero", product(_flushing_product), 42),
)  # fmt: skip
