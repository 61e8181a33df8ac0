"""Who has the process, the kernel under test or kfuzz itself.

For the watchdog, which reports a kernel as hanging only where it had the process, from
its call until the device had done with it; and for what watches the kernel alone.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum


class Holder(IntEnum):
    """Who has the process; false where kfuzz does.

    Members:
        KFUZZ: kfuzz itself.
        KERNEL: the kernel's own function, which may compile.
        DEVICE: compiled code on a device, which alone is waited for.
    """

    KFUZZ = 0
    KERNEL = 1
    DEVICE = 2


_told: dict[str, Callable[[Holder], None]] = {}


def tell(listener: Callable[[Holder], None], role: str = "watchdog") -> None:
    """Have a function called with the holder whenever it changes.

    Args:
        listener: the function; it replaces the one that had its role.
        role: what it listens for.
    """
    _told[role] = listener


_followed: dict[str, Callable[[], None]] = {}


def follow(listener: Callable[[], None], role: str = "watchdog") -> None:
    """Have a function called whenever a kernel that is interpreted gets on.

    Args:
        listener: the function; it replaces the one that had its role.
        role: what it listens for.
    """
    _followed[role] = listener


def gets_on() -> None:
    """Say that a kernel has begun one more of a known number of steps."""
    for listener in _followed.values():
        listener()


@contextmanager
def by_kernel() -> Iterator[None]:
    """Mark the time in which the kernel runs, waiting for the device included."""
    _changed(Holder.KERNEL)
    try:
        yield
    finally:
        _changed(Holder.KFUZZ)


def by_device() -> None:
    """Say that the kernel's function has returned, within `by_kernel`."""
    _changed(Holder.DEVICE)


def _changed(holder: Holder) -> None:
    for listener in _told.values():
        listener(holder)
