"""Who has the process, the kernel under test or kfuzz itself.

For the watchdog, which convicts a kernel of hanging only where it had the process, from
its call until the device had done with it; and for what watches the kernel alone.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_told: dict[str, Callable[[bool], None]] = {}


def tell(listener: Callable[[bool], None], role: str = "watchdog") -> None:
    """Have a function called with True as the kernel begins, with False as it ends.

    Args:
        listener: the function; it replaces the one that had its role.
        role: what it listens for.
    """
    _told[role] = listener


@contextmanager
def by_kernel() -> Iterator[None]:
    """Mark the time in which the kernel runs, waiting for the device included."""
    for listener in _told.values():
        listener(True)
    try:
        yield
    finally:
        for listener in _told.values():
            listener(False)
