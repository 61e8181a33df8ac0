"""Replacing attributes of a module or class for a while."""

from inspect import isdatadescriptor
from typing import Any, Final, Self

_ABSENT: Final = object()


class Patches:
    """Attributes replaced for a while."""

    def __init__(self) -> None:
        # Owner, name, what was there, what is there meanwhile.
        self._made: list[tuple[Any, str, object, object]] = []
        self._undone: list[tuple[Any, str, object, object]] = []

    def set(self, owner: Any, name: str, value: object) -> None:
        """Replace an attribute, or add it."""
        before = vars(owner).get(name, _ABSENT)
        if before is _ABSENT and isdatadescriptor(getattr(type(owner), name, None)):
            before = getattr(owner, name)  # as the code of a function
        self._made.append((owner, name, before, value))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Restore everything, last first."""
        if self._made:
            self._undone = self._made.copy()
        while self._made:
            owner, name, before, _ = self._made.pop()
            _put(owner, name, before)

    def redo(self) -> bool:
        """Replace again what was restored; return whether it was as it had been.

        Where it was not, nothing is replaced.
        """
        undone, self._undone = self._undone, []
        for owner, name, before, value in undone:
            if vars(owner).get(name, _ABSENT) is not before:
                self.undo()
                return False
            self._made.append((owner, name, before, value))
            setattr(owner, name, value)
        return bool(self._made)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.undo()


def _put(owner: Any, name: str, value: object) -> None:
    if value is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, value)
