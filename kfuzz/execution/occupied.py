"""Who has the process, the kernel under test or kfuzz itself: for the watchdog.

A time-out convicts a kernel of hanging only where it had the process, from its call
until the device had done with it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_told: list[Callable[[bool], None]] = []


def tell(listener: Callable[[bool], None]) -> None:
    """Have a function called with True as the kernel begins, with False as it ends."""
    _told[:] = [listener]


@contextmanager
def by_kernel() -> Iterator[None]:
    """Mark the time in which the kernel runs, waiting for the device included."""
    for listener in _told:
        listener(True)
    try:
        yield
    finally:
        for listener in _told:
            listener(False)
