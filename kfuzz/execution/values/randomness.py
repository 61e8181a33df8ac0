"""Torch's random generators: the same state at every call, as before afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from kfuzz.execution.device.backends import backend_of

SEED: Final = 0x5EED
"""What the generators are seeded with where nothing else is asked for."""

OTHER_SEED: Final = 0xD1CE
"""What they are seeded with to see whether a result depends on it."""


@contextmanager
def seeded(device: torch.device, seed: int) -> Iterator[None]:
    """Seed the generators of the CPU and of a device while the block runs.

    Their states are those from before when it ends.
    """
    generators = backend_of(device).generators(device)
    states = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(seed)
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
