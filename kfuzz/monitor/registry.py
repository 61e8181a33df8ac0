"""Objects that are held weakly, and listed while other threads make some."""

import weakref
from typing import Generic, TypeVar

T = TypeVar("T")


class Living(Generic[T]):
    """The objects added that something else still holds.

    A `weakref.WeakSet` cannot be read while another thread adds to it, not even to make
    a list of it. This needs no lock, which a fork would leave held.
    """

    def __init__(self) -> None:
        self._by_id: weakref.WeakValueDictionary[int, T] = weakref.WeakValueDictionary()

    def add(self, made: T) -> None:
        """Hold an object as long as something else does."""
        self._by_id[id(made)] = made

    def all(self) -> list[T]:
        """Return them, in the order in which they were added."""
        # The references are listed in one step; only then is each followed.
        found = (reference() for reference in self._by_id.valuerefs())
        return [x for x in found if x is not None]
