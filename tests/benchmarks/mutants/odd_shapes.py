"""Shapes as fuzzers of GPU kernels choose them, with a few kinds of values.

Sizes around powers of two, primes and 1, in every floating dtype; normal values, then
zeros, ones, large and small ones; torch's assert_close with its default tolerances.
What gpucheck does, but for its own lists and tolerances: it needs no installation.
"""

import random
from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor

from kfuzz.strategies.parameters import IndexParameter
from tests.benchmarks.peers.budgeted import Trial
from tests.benchmarks.peers.numpy_arrays import compare
from tests.benchmarks.peers.subject import Budget, Found, Sizes, Subject

LONG: Final = (1, 2, 3, 7, 16, 31, 32, 33, 64, 65, 127, 128, 129, 255, 257, 509, 512)
SHORT: Final = (1, 2, 3, 5, 8)
SIDES: Final = (1, 2, 3, 7, 16, 17, 31, 32, 33, 61, 64)
# Shapes, each tried with all kinds of values in one dtype.
SHAPES: Final = 400


def _sizes(subject: Subject, draw: random.Random) -> Iterator[Sizes]:
    """Yield sizes for which the operator is defined, a matrix where any rank is."""
    rows = subject.variadic
    for _ in range(SHAPES):
        named = {n: draw.choice(LONG if rows else SIDES) for n in subject.names}
        for name in named:
            named[name] = min(named[name], subject.most(name) or named[name])
        lead: tuple[int, ...] = ()
        if rows:
            lead = (draw.choice(SHORT),) if named else (
                draw.choice(SHORT), draw.choice(LONG),
            )  # fmt: skip
        sizes = Sizes(lead, named)
        if subject.admits(sizes):
            yield sizes


def _values(kind: str, shape: tuple[int, ...], random: torch.Generator) -> Tensor:
    normal = torch.randn(shape, generator=random)
    match kind:
        case "zeros":
            return torch.zeros(shape)
        case "ones":
            return torch.ones(shape)
        case "large":
            return normal * 1e3
        case "small":
            return normal * 1e-3
        case _:
            return normal


def search(subject: Subject, budget: Budget, seed: int) -> Found:
    """Try shape after shape in a random order of dtypes, each with all kinds."""
    draw = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    trial = Trial(subject, budget, compare)
    for sizes in _sizes(subject, draw):
        dtype, dim = draw.choice(subject.dtypes), draw.choice(subject.dims(sizes))
        for kind in ("normal", "zeros", "ones", "large", "small"):
            if trial.over:
                return trial.found()
            tensors = []
            for p in subject.parameters.values():
                shape = subject.shape(p, sizes)
                if isinstance(p, IndexParameter):
                    below = sizes.named[p.below]
                    tensors.append(torch.randint(below, shape, generator=generator))
                else:
                    tensors.append(_values(kind, shape, generator).to(dtype))
            trial.try_input(tensors, dim)
    return trial.found()
