"""gpucheck: its shapes, its random and edge-case inputs, its tolerances."""

import itertools
import random
from collections.abc import Iterator, Sequence

import torch
from gpucheck import assert_close, fuzz_shapes
from gpucheck.fuzzing.inputs import mixed_inputs
from torch import Tensor

from kfuzz.strategies.parameters import IndexParameter
from tests.benchmarks.peers.budgeted import Trial
from tests.benchmarks.peers.subject import Budget, Found, Sizes, Subject

# Its own default for tensors; the interpreter takes seconds for larger ones.
LONGEST = 512
# Its own default.
SHAPES = 50
# The dimension over which products are summed, wherever operators name one.
SUMMED = "K"


def _sizes(subject: Subject, seed: int) -> list[Sizes]:
    """Return sizes for which the operator is defined, a matrix where any rank is."""
    leading = 0 if not subject.variadic else 1 if subject.names else 2
    shapes = fuzz_shapes(
        leading + len(subject.names), max_size=LONGEST, n=SHAPES, seed=seed
    )
    every = (
        Sizes(s[:leading], dict(zip(subject.names, s[leading:], strict=True)))
        for s in shapes
    )
    return [sizes for sizes in every if subject.accepts(sizes)]


def _arguments(
    subject: Subject, sizes: Sizes, dtype: torch.dtype, seed: int
) -> Iterator[list[Tensor]]:
    """Yield arguments, all of a call with the same kind of values."""
    draw = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)  # some of its inputs come from torch's own generator
    kinds = []
    for number, p in enumerate(subject.parameters.values()):
        if not isinstance(p, IndexParameter):
            shape = subject.shape(p, sizes)
            listed = mixed_inputs(shape, dtype, seed=seed + number)
            kinds.append([x for _, x in listed])
    for floating in zip(*kinds, strict=True):
        left = iter(floating)
        yield [
            torch.randint(sizes.named[p.below], subject.shape(p, sizes), generator=draw)
            if isinstance(p, IndexParameter)
            else next(left)
            for p in subject.parameters.values()
        ]


def search(subject: Subject, budget: Budget, seed: int) -> Found:
    """Try its shapes in a random order, each with all of its kinds of inputs."""
    draw = random.Random(seed)
    grid = list(itertools.product(_sizes(subject, seed), subject.dtypes))
    draw.shuffle(grid)
    summed: list[int | None] = [None]

    def compare(results: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
        for y, reference in zip(results, wanted, strict=True):
            assert_close(y, reference, k_dim=summed[0], nan_equal=True)

    trial = Trial(subject, budget, compare)
    for sizes, dtype in grid:
        summed[0] = sizes.named.get(SUMMED)
        for tensors in _arguments(subject, sizes, dtype, draw.randrange(1 << 30)):
            if trial.over:
                return trial.found()
            trial.try_input(tensors, draw.choice(subject.dims(sizes)))
    return trial.found()
