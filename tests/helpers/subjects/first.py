"""Correct and faulty implementations: sums, maxima, softmax, norms and products."""

import torch
from torch import Tensor

from tests.helpers import correct_algorithms as correct
from tests.helpers.impostors import Setup, Subject
from tests.helpers.operator_cases import CORRECT, OPERATORS, SHAPES, TORCH


def sum_in_half(x: Tensor, *, dim: int) -> Tensor:
    """Keep the sum in float16, or bfloat16 for bfloat16 data."""
    narrow = torch.bfloat16 if x.dtype is torch.bfloat16 else torch.float16
    total = torch.zeros(x.shape[:-1], dtype=narrow)
    for part in x.to(narrow).unbind(dim):
        total = total + part
    return total.to(x.dtype)


def softmax_in_half(x: Tensor, *, dim: int) -> Tensor:
    narrow = torch.bfloat16 if x.dtype is torch.bfloat16 else torch.float16
    weight = torch.exp(x.to(narrow) - x.to(narrow).amax(dim, keepdim=True))
    return (weight / weight.sum(dim, keepdim=True)).to(x.dtype)


def layer_norm_in_half(
    x: Tensor, weight: Tensor, bias: Tensor, *, eps: float
) -> Tensor:
    narrow = torch.bfloat16 if x.dtype is torch.bfloat16 else torch.float16
    h = x.to(narrow)
    d = h - h.mean(-1, keepdim=True)
    r = torch.rsqrt((d * d).mean(-1, keepdim=True) + eps)
    return (d * r * weight.to(narrow) + bias.to(narrow)).to(x.dtype)


def matmul_in_half(a: Tensor, b: Tensor) -> Tensor:
    narrow = torch.bfloat16 if a.dtype is torch.bfloat16 else torch.float16
    total = torch.zeros(a.shape[0], b.shape[1], dtype=narrow)
    for k in range(a.shape[1]):
        total = total + a[:, k, None].to(narrow) * b[k].to(narrow)
    return total.to(a.dtype)


def setups(name: str) -> tuple[Setup, ...]:
    """Return the sizes of each operator's tensors, and its scalars."""
    made = []
    for shape, scalars in SHAPES[name]:
        shapes: tuple[tuple[int, ...], ...] = (shape,)
        if name == "matmul":
            shapes = (shape[:2], shape[1:])
        elif name == "layer_norm":
            shapes = (shape, shape[-1:], shape[-1:])
        made.append(Setup(shapes, scalars))
    return tuple(made)


ROW = Setup(((4, 64),), {"dim": -1})
LONG = Setup(((4, 512),), {"dim": -1})
SUBJECTS = {
    "sum": Subject(
        OPERATORS["sum"], torch.sum, setups("sum"), ROW, correct=CORRECT["sum"],
        half=sum_in_half, half_setup=LONG,
        half_families=("absorb", "uniform01", "randn"),
    ),
    "softmax": Subject(
        OPERATORS["softmax"], next(iter(CORRECT["softmax"].values())),
        setups("softmax"), ROW, correct=CORRECT["softmax"],
        half=softmax_in_half, half_setup=LONG,
        half_families=("randn", "exact_int", "uniform01"), infinities=False,
    ),
    "layer_norm": Subject(
        OPERATORS["layer_norm"], TORCH["layer_norm"], setups("layer_norm"),
        Setup(((4, 64), (64,), (64,)), {"eps": 1e-5}), correct=CORRECT["layer_norm"],
        half=layer_norm_in_half,
        half_setup=Setup(((4, 512), (512,), (512,)), {"eps": 1e-5}),
        half_families=("randn", "uniform01", "offset"), infinities=False,
    ),
    "matmul": Subject(
        OPERATORS["matmul"], torch.matmul, setups("matmul"),
        Setup(((4, 64), (64, 4))), correct=CORRECT["matmul"],
        of_units=correct.TENSOR_CORES, of_blas=True,
        half=matmul_in_half, half_setup=Setup(((4, 512), (512, 4))),
        half_families=("randn", "uniform01", "all_equal"),
    ),
    "amax": Subject(
        OPERATORS["amax"], torch.amax, setups("amax"), ROW, correct=CORRECT["amax"]
    ),
    "relu": Subject(
        OPERATORS["relu"], torch.relu, setups("relu"), Setup(((4, 64),)),
        correct=CORRECT["relu"], families=("randn",),
    ),
}  # fmt: skip
