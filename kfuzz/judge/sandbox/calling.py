"""What one call came to, as the child tells it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kfuzz.core.untrusted import End, Ended, Told
from kfuzz.judge.sandbox.arguments import ArgumentRooms
from kfuzz.judge.sandbox.carried import Carrier
from kfuzz.judge.sandbox.results import (
    Broken,
    Given,
    Returned,
    returned,
    told_exception,
)


@dataclass(frozen=True)
class Called:
    """What one call came to: an answer, an exception or an end.

    Attributes:
        returned: what it returned, in the campaign's memory; None if it did not.
        raised: the exception that left it.
        backend: whether that is said to be a failure of Triton's own.
        ended: how the child came to its end; the next call has a fresh one.
        seconds: from the request to the answer, by the campaign's clock.
    """

    returned: Returned | None = None
    raised: Told | None = None
    backend: bool = False
    ended: Ended | None = None
    seconds: float = 0.0

    @property
    def spoilt(self) -> bool:
        """Whether its child is of no further use: it may keep what it took."""
        raised = self.raised
        lost = raised is not None and (raised.memory or bool(raised.fault))
        return lost or self.ended is not None


def read_called(
    answer: dict[str, Any],
    rooms: ArgumentRooms,
    carried: Carrier,
    results: Carrier,
    tensors: Sequence[Tensor],
    device: torch.device,
    given: Given,
) -> Called:
    """Return what an answer says; one that is none counts as an end.

    Args:
        answer: the child's.
        rooms: the arguments' memory, into which is copied what the kernel left.
        carried: that memory as the child has it.
        results: the elements of results.
        tensors: the arguments.
        device: where results are to lie.
        given: earlier results.

    Raises:
        torch.OutOfMemoryError: the campaign has no memory for the results.
    """
    try:
        if "raised" in answer:
            raised, backend = told_exception(answer["raised"])
            return Called(raised=raised, backend=backend)
        rooms.read(carried)
        return Called(returned=returned(answer, results, tensors, device, given))
    except torch.OutOfMemoryError:
        raise
    # A dtype without a size, or strides that overlap: whatever torch says of those.
    except (Broken, ArithmeticError, OSError, RuntimeError, TypeError, ValueError) as e:
        text = f"does not tell what it returned: {e}"
        return Called(ended=Ended(End.PROTOCOL, "protocol", text))
