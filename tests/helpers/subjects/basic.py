"""Correct and faulty implementations: sums, softmax, layer norm, products, relu."""

from typing import Final

import torch
from torch import Tensor

from tests.helpers import correct_algorithms
from tests.helpers.impostors import Algorithm, Setup, Subject
from tests.helpers.operator_cases import CORRECT, OPERATORS, SHAPES, TORCH


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
    """Return an operator with the sizes and algorithms of `operator_cases`."""
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
