"""What a call changed in its arguments, compared on their device, without waiting."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kfuzz.monitor.snapshot import Rooms, Snapshot, Streams, take


@dataclass(frozen=True)
class Change:
    """What a call changed in one argument.

    Attributes:
        count: elements that hold other bits than before.
        first: the first of them, counted in C order.
    """

    count: int
    first: int


class Comparison:
    """What a call changed in its arguments, known once its numbers are there.

    On a GPU two numbers per argument come through the ring as copies do.

    Attributes:
        numbers: the copies of those; None where none came from a GPU.
    """

    def __init__(self, numbers: Snapshot | None, known: dict[str, Change]) -> None:
        self.numbers = numbers
        self._known = known
        self._names: list[str] = []

    @classmethod
    def of(
        cls,
        before: dict[str, Tensor],
        after: dict[str, Tensor],
        rooms: Rooms,
        streams: Streams,
    ) -> "Comparison | None":
        """Compare arguments with what they were; None where there is no room.

        Args:
            before: the snapshot's originals by name.
            after: the arguments themselves.
            rooms: where numbers from a GPU go.
            streams: what brings them.
        """
        known, pending = {}, {}
        with torch.no_grad():
            for name, was in before.items():
                now = after[name].detach()
                if not now.numel():
                    continue
                if now.is_cuda:
                    differs = (bits(was) != bits(now)).reshape(-1)
                    first = differs.to(torch.uint8).argmax()
                    pending[name] = torch.stack((differs.sum(), first))
                elif not torch.equal(bits(was), bits(now)):
                    differs = (bits(was) != bits(now)).reshape(-1)
                    first = differs.to(torch.uint8).argmax()
                    known[name] = Change(int(differs.sum()), int(first))
        if not pending:
            return cls(None, known)
        numbers = take(list(pending.values()), rooms, streams)
        if numbers is None:
            return None
        made = cls(numbers, known)
        made._names = list(pending)
        return made

    def changes(self) -> dict[str, Change]:
        """Return the arguments that were changed; waits as `Snapshot.wait` does."""
        if self.numbers is None:
            return self._known
        self.numbers.wait()
        found = dict(self._known)
        for name, copy in zip(self._names, self.numbers.copies, strict=True):
            count, first = copy.values.tolist()
            if count:
                found[name] = Change(count, first)
        return found


def bits(tensor: Tensor) -> Tensor:
    """Return the elements of a tensor as integers of their size, of its layout."""
    ints = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(ints[tensor.element_size()])
