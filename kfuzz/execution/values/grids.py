"""Many tensors of one shape at once, each with the numbers of its own seed.

Keys and picks are made on the host for all tensors together, by numpy, and brought to
the device in few pieces; the elements of all tensors are made there as those of one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kfuzz.execution.values.generator import (
    Grid,
    Number,
    mixed,
    mixed_on_host,
    uploaded,
)

Words: TypeAlias = NDArray[np.uint64]

# Keys of so many consecutive streams are made together.
_CHUNK: Final = 4
_LOW: Final = np.uint64((1 << 32) - 1)


def splitmix64_all(state: Words) -> Words:
    """Return what `generator.splitmix64` gives each state; they wrap around."""
    z = state + np.uint64(0x9E3779B97F4A7C15)
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


class Streams:
    """The keys and picks of many seeds, made as they are asked for.

    Attributes:
        seeds: one per tensor, uint64.
        device: where the elements are made.
    """

    def __init__(self, seeds: Words, device: torch.device) -> None:
        """Take the seeds."""
        self.seeds = seeds
        self.device = device
        self._mixed = splitmix64_all(seeds)
        self._chunks: dict[int, Tensor] = {}
        self._drawn: dict[int, Words] = {}

    @cached_property
    def _inverse(self) -> Words:
        return splitmix64_all(~self.seeds)

    def _keys(self, number: int) -> Words:
        """Return the keys of a chunk of streams, [_CHUNK, tensors]."""
        if number not in self._drawn:
            first = number * _CHUNK
            streams = np.arange(first, first + _CHUNK, dtype=np.uint64)[:, None]
            self._drawn[number] = splitmix64_all(self._mixed ^ streams)
        return self._drawn[number]

    def key(self, stream: int) -> Words:
        """Return the keys of a stream, [tensors]."""
        number, place = divmod(stream, _CHUNK)
        made: Words = self._keys(number)[place]
        return made

    def chunk(self, number: int) -> Tensor:
        """Return low and high halves of keys, int64 [_CHUNK, 2, tensors, 1, 1]."""
        if number not in self._chunks:
            keys = self._keys(number)
            halves = np.stack((keys & _LOW, keys >> np.uint64(32)), axis=1)
            shape = (_CHUNK, 2, len(self.seeds), 1, 1)
            self._chunks[number] = uploaded(
                halves.view(np.int64).reshape(shape), self.device
            )
        return self._chunks[number]

    def picks(self, stream: int, count: int) -> NDArray[np.int64]:
        """Return one integer of 0..count-1 per tensor."""
        drawn = splitmix64_all(self._inverse ^ np.uint64(stream))
        return (drawn % np.uint64(count)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Grids(Grid):
    """Grids of one shape, elements of shape (tensors, rows, n).

    What a `Grid` has one of per tensor, an array holds here, see `laid`.

    Attributes:
        streams: of these tensors, and of others before and after them.
        start: the first of these tensors.
        stop: one past the last.
    """

    streams: Streams
    start: int
    stop: int

    @property
    def count(self) -> int:
        """How many tensors there are."""
        return self.stop - self.start

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the elements: (tensors, rows, n)."""
        return (self.count, self.rows, self.n)

    @cached_property
    def _chunks(self) -> dict[int, tuple[Tensor, ...]]:
        return {}

    @cached_property
    def _counters(self) -> Tensor:
        return torch.arange(2 * self.rows * self.n, device=self.device).view(
            2, 1, self.rows, self.n
        )

    def _on_host(self, stream: int, counter: Tensor) -> NDArray[np.uint32]:
        keys = self.streams.key(stream)[self.start : self.stop].reshape(-1, 1, 1)
        low, high = keys.astype(np.uint32), (keys >> np.uint64(32)).astype(np.uint32)
        return mixed_on_host(counter, low, high)

    def _mixed(self, stream: int, counter: Tensor) -> Tensor:
        if self.device.type == "cpu":
            return super()._mixed(stream, counter)
        number, place = divmod(stream, _CHUNK)
        if number not in self._chunks:
            mine = self.streams.chunk(number)[:, :, self.start : self.stop]
            self._chunks[number] = mine.flatten(0, 1).unbind(0)
        low, high = self._chunks[number][2 * place : 2 * place + 2]
        return mixed(counter, low, high)

    def pick(self, stream: int, count: int) -> Number:
        """Return one integer of 0..count-1 per tensor, int64 [tensors]."""
        return self.streams.picks(stream, count)[self.start : self.stop]

    def laid(self, number: Number) -> Tensor:
        """Return what is one number per tensor as a tensor (tensors, 1, 1).

        A number that is the same for all stays one.
        """
        if not isinstance(number, np.ndarray):
            return super().laid(number)
        return uploaded(number.reshape(-1, 1, 1), self.device)

    def select(self, pick: Number, builders: Sequence[Callable[[], Tensor]]) -> Tensor:
        """Return for each tensor what the builder of its own number makes."""
        chosen: Tensor | None = None
        wanted = self.laid(pick)
        for number in np.unique(pick).tolist():
            made = builders[number]()
            if chosen is None:
                chosen = made
            else:
                chosen = torch.where(wanted == number, made, chosen)
        assert chosen is not None
        return chosen

    def put(self, raw: Tensor, row: Number, place: Number, bits: Number) -> None:
        """Overwrite one element of each tensor in the contiguous integers `raw`."""
        flat = np.arange(self.count) * self.rows
        flat = (flat + row) * self.n + place
        at, value = uploaded(np.stack((flat, bits + 0 * flat)), self.device).unbind(0)
        raw.view(-1).index_put_((at,), value.to(raw.dtype))
