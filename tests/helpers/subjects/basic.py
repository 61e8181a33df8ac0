"""Correct and faulty implementations: sums, softmax, layer norm, products, relu."""

from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.operator import Operator
from kfuzz.core.recipe import Scalar
from tests.helpers import correct_algorithms
from tests.helpers.impostors import (
    Algorithm,
    Posed,
    Setup,
    Subject,
    case_of,
    pose_case,
)

OPERATORS: Final[dict[str, Operator]] = {
    "sum": ops.sum,
    "softmax": ops.softmax,
    "layer_norm": ops.layer_norm,
    "matmul": ops.matmul,
    "amax": ops.amax,
    "relu": ops.relu,
}


def torch_layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor, *, eps: float = 1e-5
) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


def sorted_last(x: Tensor, *, dim: int) -> Tensor:
    """A maximum by sorting; NaN sorts last."""
    return x.sort(dim).values.select(dim, -1)


def clamped(x: Tensor) -> Tensor:
    return x.clamp(min=0)


def selected(x: Tensor) -> Tensor:
    return torch.where(x <= 0, torch.zeros((), dtype=x.dtype), x)


TORCH: Final[dict[str, Algorithm]] = {
    "sum": torch.sum,
    "softmax": torch.softmax,
    "layer_norm": torch_layer_norm,
    "matmul": torch.matmul,
    "amax": torch.amax,
    "relu": torch.relu,
}
CORRECT: Final[dict[str, dict[str, Algorithm]]] = {
    "sum": correct_algorithms.SUMS,
    "softmax": correct_algorithms.SOFTMAXES,
    "layer_norm": correct_algorithms.LAYER_NORMS,
    "matmul": correct_algorithms.MATMULS,
    "amax": {
        "sorted": sorted_last,
        "max": lambda x, *, dim: x.max(dim).values,
        "widened": lambda x, *, dim: x.float().amax(dim).to(x.dtype),
    },
    "relu": {"clamped": clamped, "selected": selected},
}

# Shapes of the first tensor (and for matmul M, K, N) with the scalars.
ROWS: Final[tuple[tuple[tuple[int, ...], dict[str, Scalar]], ...]] = (
    ((2, 1), {"dim": -1}),
    ((3, 33), {"dim": 1}),
    ((65, 2), {"dim": 0}),
    ((2, 17, 3), {"dim": -2}),
    ((131,), {"dim": -1}),
)
SHAPES: Final[dict[str, tuple[tuple[tuple[int, ...], dict[str, Scalar]], ...]]] = {
    "sum": (*ROWS, ((2, 0), {"dim": -1}), ((0, 3), {"dim": -1})),
    "softmax": (*ROWS, ((2, 0), {"dim": -1}), ((0, 3), {"dim": -1})),
    "amax": ROWS,
    "relu": (((3, 33), {}), ((), {}), ((0,), {}), ((2, 1, 5), {})),
    "layer_norm": (
        ((2, 1), {"eps": 1e-5}),
        ((3, 33), {"eps": 1e-12}),
        ((2, 2, 66), {"eps": 1e-5}),
        ((0, 3), {"eps": 0.1}),
    ),
    "matmul": (
        ((1, 1, 1), {}),
        ((3, 33, 2), {}),
        ((2, 66, 2), {}),
        ((2, 0, 2), {}),
    ),
}


def narrow(x: Tensor) -> torch.dtype:
    return torch.bfloat16 if x.dtype is torch.bfloat16 else torch.float16


def sum_in_half(x: Tensor, *, dim: int) -> Tensor:
    total = torch.zeros(x.shape[:-1], dtype=narrow(x))
    for part in x.to(narrow(x)).unbind(dim):
        total = total + part
    return total.to(x.dtype)


def softmax_in_half(x: Tensor, *, dim: int) -> Tensor:
    held = x.to(narrow(x))
    weight = torch.exp(held - held.amax(dim, keepdim=True))
    return (weight / weight.sum(dim, keepdim=True)).to(x.dtype)


def layer_norm_in_half(
    x: Tensor, weight: Tensor, bias: Tensor, *, eps: float
) -> Tensor:
    h, g, b = (t.to(narrow(x)) for t in (x, weight, bias))
    d = h - h.mean(-1, keepdim=True)
    r = torch.rsqrt((d * d).mean(-1, keepdim=True) + eps)
    return (d * r * g + b).to(x.dtype)


def matmul_in_half(a: Tensor, b: Tensor) -> Tensor:
    total = torch.zeros(a.shape[0], b.shape[1], dtype=narrow(a))
    for k in range(a.shape[1]):
        total = total + a[:, k, None].to(narrow(a)) * b[k].to(narrow(a))
    return total.to(a.dtype)


def setup(name: str, *shape: int, **scalars: float) -> Setup:
    """Return the sizes of all arguments, by the first one's (of a product M, K, N)."""
    if name == "matmul":
        m, k, n = shape
        return Setup(((m, k), (k, n)))
    if name == "layer_norm":
        return Setup((shape, shape[-1:], shape[-1:]), scalars)
    return Setup((shape,), scalars)


def subject(
    name: str,
    *half_families: str,
    honest: Algorithm,
    half: Algorithm | None = None,
    **known: object,
) -> Subject:
    """Return an operator with its sizes and algorithms."""
    scalars = dict(SHAPES[name][0][1])
    last = (4,) if name == "matmul" else ()
    return Subject(
        OPERATORS[name],
        honest,
        tuple(setup(name, *shape, **given) for shape, given in SHAPES[name]),
        setup(name, 4, 64, *last, **scalars),
        correct=CORRECT[name],
        half=half,
        half_setup=setup(name, 4, 512, *last, **scalars),
        half_families=half_families,
        **known,
    )


SUBJECTS: Final = {
    "sum": subject(
        "sum", "absorb", "uniform01", "randn", honest=torch.sum, half=sum_in_half
    ),
    # Along other dimensions than the last torch's softmax of 16-bit data rounds the
    # exponentials to the data's format.
    "softmax": subject(
        "softmax", "randn", "exact_int", "uniform01", half=softmax_in_half,
        honest=CORRECT["softmax"]["primitive"], infinities=False,
    ),
    "layer_norm": subject(
        "layer_norm", "randn", "uniform01", "offset", half=layer_norm_in_half,
        honest=TORCH["layer_norm"], infinities=False,
    ),
    "matmul": subject(
        "matmul", "randn", "uniform01", "all_equal", half=matmul_in_half,
        honest=torch.matmul, of_units=correct_algorithms.TENSOR_CORES, of_blas=True,
    ),
    "amax": subject("amax", honest=torch.amax),
    "relu": subject("relu", honest=torch.relu, families=("randn",)),
}  # fmt: skip


def pose(
    name: str,
    dtype: str,
    family: str,
    sizes: Setup,
    *,
    other: str = "randn",
    seed: int = 1,
    **claims: str,
) -> Posed:
    """Return a case with values, problem and acceptances."""
    subject = SUBJECTS[name]
    case = case_of(subject, dtype, family, sizes, seed=seed, other=other)
    return pose_case(subject, case, **claims)
