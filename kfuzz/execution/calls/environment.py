"""One way to call a kernel: what holds meanwhile, and what comes of a call."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

import torch

from kfuzz.execution.calls.occupied import by_device, by_kernel
from kfuzz.execution.calls.raised import caught
from kfuzz.execution.calls.torch_state import put_back
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.device.surroundings import surroundings_of
from kfuzz.execution.values.randomness import SEED, seeded
from kfuzz.numerics.run import Raised, UncheckedLaunch


@dataclass(frozen=True)
class Call:
    """What came of one call.

    Attributes:
        returned: what the kernel returned.
        raised: the exception that left it.
        unchecked: a launch that failed on a GPU though the call returned.
        left: what it left changed of torch's own state, in words; it was put back.
    """

    returned: object = None
    raised: Raised | None = None
    unchecked: UncheckedLaunch | None = None
    left: tuple[str, ...] = ()


@contextmanager
def environment(device: torch.device, seed: int = SEED) -> Iterator[list[str]]:
    """What holds during a call, or all calls of a batch.

    It gives a list that holds, at its end, what was left changed of torch's state.

    Args:
        device: where the kernel runs.
        seed: of torch's random generators.
    """
    around = surroundings_of(device)
    if around is not None:
        around.forget_errors()
    with by_kernel(), seeded(device, seed), torch.no_grad(), put_back() as left:
        yield left


def attempt(
    call: Callable[[], object],
    device: torch.device,
    guard: AbstractContextManager[object],
) -> Call:
    """Call a kernel within its environment, without waiting for its device.

    Raises:
        KernelEnded: it ran in a process of its own, which ended.
        KeyboardInterrupt: if it is the user's.
    """
    unchecked = None
    try:
        with guard:
            returned = call()
            around = surroundings_of(device)
            if around is not None:  # the next launch would raise it
                unchecked = around.take_unchecked()
    except BaseException as error:
        return Call(raised=caught(error, device))
    return Call(returned, unchecked=unchecked)


def call_once(
    call: Callable[[], object],
    device: torch.device,
    guard: AbstractContextManager[object],
    *,
    seed: int = SEED,
) -> Call:
    """Call a kernel in its environment and wait for its device; see `attempt`."""
    backend = backend_of(device)
    try:
        with environment(device, seed) as left:
            made = attempt(call, device, guard)
            if made.raised is None and backend.has.asynchronous:
                by_device()
                backend.wait(device)
    except BaseException as error:
        return Call(raised=caught(error, device))
    return replace(made, left=tuple(left))
