"""Correct and faulty implementations: sums, softmax, layer norm, products, relu."""

from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from tests.helpers import correct_algorithms as correct
from tests.helpers.impostors import (
    Posed,
    Setup,
    Subject,
    case_of,
    pose_case,
)
from tests.helpers.subjects.reductions import EMPTY, plain, rows


def torch_layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor, *, eps: float = 1e-5
) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


def setup(name: str, *shape: int, **scalars: float) -> Setup:
    """Return the sizes of all arguments, by the first one's (of a product M, K, N)."""
    if name == "matmul":
        m, k, n = shape
        return Setup(((m, k), (k, n)))
    if name == "layer_norm":
        return Setup((shape, shape[-1:], shape[-1:]), scalars)
    return Setup((shape,), scalars)


SUBJECTS: Final = {
    "sum": Subject(
        ops.sum, torch.sum, rows(*EMPTY), plain(), correct=correct.SUMS
    ),
    # Along other dimensions than the last torch's softmax of 16-bit data rounds the
    # exponentials to the data's format.
    "softmax": Subject(
        ops.softmax, correct.SOFTMAXES["primitive"], rows(*EMPTY), plain(),
        correct=correct.SOFTMAXES, infinities=False,
    ),
    "layer_norm": Subject(
        ops.layer_norm, torch_layer_norm,
        tuple(
            setup("layer_norm", *shape, eps=eps)
            for shape, eps in (
                ((2, 1), 1e-5), ((3, 33), 1e-12), ((2, 2, 66), 1e-5), ((0, 3), 0.1)
            )
        ),
        setup("layer_norm", 4, 64, eps=1e-5),
        correct=correct.LAYER_NORMS, infinities=False,
    ),
    "matmul": Subject(
        ops.matmul, torch.matmul,
        tuple(
            setup("matmul", *s) for s in ((1, 1, 1), (3, 33, 2), (2, 66, 2), (2, 0, 2))
        ),
        setup("matmul", 4, 64, 4),
        correct=correct.MATMULS, of_units=correct.TENSOR_CORES, of_blas=True,
    ),
    "amax": Subject(
        ops.amax, torch.amax, rows(), plain(),
        correct={
            # NaN sorts last.
            "sorted": lambda x, *, dim: x.sort(dim).values.select(dim, -1),
            "max": lambda x, *, dim: x.max(dim).values,
            "widened": lambda x, *, dim: x.float().amax(dim).to(x.dtype),
        },
    ),
    "relu": Subject(
        ops.relu, torch.relu,
        tuple(Setup((shape,)) for shape in ((3, 33), (), (0,), (2, 1, 5))),
        Setup(((4, 64),)),
        correct={
            "clamped": lambda x: x.clamp(min=0),
            "selected": lambda x: torch.where(x <= 0, x.new_zeros(()), x),
        },
        families=("randn",),
    ),
}  # fmt: skip
OPERATORS: Final = {name: s.operator for name, s in SUBJECTS.items()}
CORRECT: Final = {name: s.correct for name, s in SUBJECTS.items()}
TORCH: Final = {n: s.honest for n, s in SUBJECTS.items()} | {"softmax": torch.softmax}


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
