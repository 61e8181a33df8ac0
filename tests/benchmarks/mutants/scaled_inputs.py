"""Five normal inputs at one friendly shape, each as it is, times 3, 0.01 and -1.

How benchmarks of generated kernels are made stricter; compared as the five alone are.
"""

from typing import Final

import torch

from tests.benchmarks.peers.budgeted import Trial
from tests.benchmarks.peers.five_random import INPUTS, compare
from tests.benchmarks.peers.subject import Budget, Found, Subject

FACTORS: Final = (1.0, 3.0, 0.01, -1.0)


def search(subject: Subject, budget: Budget, seed: int) -> Found:
    """Try five inputs at the shape of the plain functional test, by every factor."""
    trial = Trial(subject, budget, compare)
    random = torch.Generator().manual_seed(seed)
    sizes, dtype = subject.friendly(), subject.usual_dtype
    for _ in range(INPUTS):
        drawn = list(subject.ordinary(sizes, dtype, random))
        for factor in FACTORS:
            if trial.over:
                return trial.found()
            scaled = [x * factor if x.is_floating_point() else x for x in drawn]
            trial.try_input(scaled, subject.dims(sizes)[-1])
    return trial.found()
