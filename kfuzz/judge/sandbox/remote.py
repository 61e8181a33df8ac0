"""`RemoteKernel`: foreign code in a child, callable like an implementation."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from kfuzz.core.errors import KfuzzError
from kfuzz.core.untrusted import End, Ended, KernelEnded, OutputSpec
from kfuzz.execution.calls.raised import RaisedElsewhere
from kfuzz.execution.memory.allocations import GuardedAllocations
from kfuzz.execution.memory.poison import Poison
from kfuzz.judge.sandbox.circumstances import Circumstances
from kfuzz.judge.sandbox.results import Returned, stand_in
from kfuzz.judge.sandbox.sandbox import Called, Sandbox
from kfuzz.numerics.run import Raised

Outputs = Callable[[Sequence[Tensor], Mapping[str, Any]], Sequence[OutputSpec] | None]

_MOST_NAMES: Final = 256


class RemoteKernel:
    """Calls a sandbox's entry on tensors of the campaign's.

    Bound like any implementation, `kernel(operator, name=…)(RemoteKernel(sandbox))`, it
    lets `kfuzz.evaluation.evaluator.Evaluator` judge in the campaign's process what
    runs in another: arguments travel with their guard zones and come back as the kernel
    left them, results are copies. Every call is made with the poison and the seed that
    the evaluator asks for. Where the child ends, the next call has a fresh one. A call
    that does not return in time is made once more in a fresh child, and is a hang if
    that one does not return either.

    It raises `KernelEnded` where the kernel ended its process, and `RaisedElsewhere`
    for what the kernel raised; both are understood by what calls kernels.

    Args:
        sandbox: where the entry runs; the caller opens and closes it.
        outputs: tells what a call may return; None for a bound by the arguments' size.
        nesting: how results are to be nested, as `results.nesting` says it.
        circumstances: draws what surrounds each call; fresh ones by default.

    Attributes:
        predicted: seconds that a call is expected to take, at most what calls took.
        calls: calls that returned.
        in_a_row: most of them that one child answered.
        late: calls after which results still changed.
        operators: torch's own operators that computed in any call, by the child's word.
        kernels: those of Triton that it launched, likewise.
        strays: writes beside the kernel's own allocations, by the child's word.
        left: what calls left changed of torch's state, likewise.
        circumstances: what draws what surrounds each call.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        outputs: Outputs | None = None,
        nesting: str = "",
        circumstances: Circumstances | None = None,
    ) -> None:
        self.sandbox = sandbox
        self.circumstances = circumstances or Circumstances()
        self._nesting = nesting
        self.predicted = 0.0
        self.calls = 0
        self.late = 0
        self.in_a_row = self._row = 0
        self.operators: dict[str, None] = {}
        self.kernels: dict[str, None] = {}
        self.strays: dict[str, None] = {}
        self.left: dict[str, None] = {}
        self._outputs = outputs
        # Calls that overlap in the campaign's threads take turns.
        self._lock = threading.Lock()

    def __call__(self, *tensors: Tensor, **scalars: Any) -> Any:
        """Call the kernel; returns what it returned, as tensors of kfuzz's own."""
        mode = _get_current_dispatch_mode()
        guarded = mode if isinstance(mode, GuardedAllocations) else None
        poison = Poison.NAN if guarded is None else guarded.poison
        seed = torch.default_generator.initial_seed()
        first = not self.sandbox.warm
        with self._lock, torch._C._DisableTorchDispatch():
            called = self._called(tensors, scalars, poison, seed)
        returned = called.returned
        if returned is None:
            raise RaisedElsewhere(called.raised or Raised("Exception", "", ""))
        self.calls += 1
        self._row = 1 if first else self._row + 1
        self.in_a_row = max(self.in_a_row, self._row)
        self.late += returned.late
        if not first:  # a child's first call may build and compile
            self.predicted = max(0.9 * self.predicted, called.seconds)
        for names, known in (
            (returned.operators, self.operators),
            (returned.kernels, self.kernels),
            (returned.strays, self.strays),
            (returned.left, self.left),
        ):
            if len(known) < _MOST_NAMES:
                known.update(dict.fromkeys(names))
        if guarded is not None:
            guarded.foreign.update(dict.fromkeys(returned.operators))
        return self._as_declared(returned)

    def _as_declared(self, returned: Returned) -> object:
        """Return what it returned, in a row; what is nested otherwise is of a type."""
        if returned.nesting == self._nesting:
            return returned.value
        return stand_in(returned.type)

    def _called(
        self,
        tensors: Sequence[Tensor],
        scalars: Mapping[str, Any],
        poison: Poison,
        seed: int,
    ) -> Called:
        """Call the child, twice where it does not return in time.

        Raises:
            KernelEnded: it ended instead of answering.
        """
        outputs = None if self._outputs is None else self._outputs(tensors, scalars)
        named = {k: v for k, v in scalars.items() if isinstance(v, Tensor)}
        plain = {k: v for k, v in scalars.items() if k not in named}
        if not self.sandbox.alive:
            self.circumstances.renew()
        around = self.circumstances.of(seed, [*tensors, *named.values()])
        time.sleep(around.pause)
        for attempt in range(2):
            try:
                called = self.sandbox.call(
                    tensors, plain, outputs, named=named,
                    poison=poison, around=around, predicted=self.predicted,
                )  # fmt: skip
            except (OSError, KfuzzError) as error:
                text = f"cannot be called: {error}"
                raise KernelEnded(Ended(End.UNAVAILABLE, "", text)) from None
            if called.ended is None:
                break
            if called.ended.end is not End.HANG or attempt:
                raise KernelEnded(called.ended)
        return called
