"""What came back of a candidate's calls: kept beside a finding that is witnessed.

Inputs and results as bytes show the miss to whoever looks, also where it does not show
again.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from torch import Tensor

from kfuzz.core.verdict import Failure
from kfuzz.judge.sandbox.wire import raw
from kfuzz.store.tensorfile import StoredTensor, dump

FILE: Final = "recorded.safetensors"
"""Beside `finding.json`: the results of the call that was wrong, by output."""

# Calls of one case whose results are kept, and elements of those that are.
_CALLS: Final = 32
_ELEMENTS: Final = 1 << 20


class Recording:
    """The results of the last calls on one case."""

    def __init__(self) -> None:
        self._calls: deque[tuple[Tensor, ...]] = deque(maxlen=_CALLS)

    def begin(self) -> None:
        """A case begins."""
        self._calls.clear()

    def take(self, returned: Any) -> None:
        """Keep a copy of what a call returned, if these are tensors of some size."""
        parts = (returned,) if isinstance(returned, Tensor) else returned
        if not isinstance(parts, tuple | list):
            return
        tensors = [x for x in parts if type(x) is Tensor and not x.is_meta]
        if len(tensors) < len(parts) or sum(x.numel() for x in tensors) > _ELEMENTS:
            return
        self._calls.append(tuple(x.detach().clone() for x in tensors))

    def showing(self, failure: Failure, outputs: Sequence[str]) -> bytes | None:
        """Return the file of the results that a failure is about; None if not kept."""
        place = failure.place or 0
        for tensors in reversed(self._calls):
            if len(tensors) == len(outputs) and _holds(tensors[place], failure):
                named = zip(outputs, tensors, strict=True)
                return dump({name: _stored(x) for name, x in named})
        return None


def _holds(result: Tensor, failure: Failure) -> bool:
    index, got = failure.index, failure.got
    if index is None or got is None or len(index) != result.dim():
        return False
    if any(i >= n for i, n in zip(index, result.shape, strict=True)):
        return False
    value = float(result[index])
    return value == got or (math.isnan(value) and math.isnan(got))


def _stored(result: Tensor) -> StoredTensor:
    data = raw(result).cpu().numpy().tobytes()
    name = str(result.dtype).removeprefix("torch.")
    return StoredTensor(name, tuple(result.shape), data)
