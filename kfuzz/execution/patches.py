"""Replacing attributes of a module or class for a while."""

from collections.abc import Callable
from typing import Any


class Patches:
    """Attributes replaced for a while."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, value: object) -> None:
        """Replace an attribute, or add it."""
        if name in vars(owner):
            before = vars(owner)[name]
            self._undo.append(lambda: setattr(owner, name, before))
        else:
            self._undo.append(lambda: delattr(owner, name))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Restore everything, last first."""
        while self._undo:
            self._undo.pop()()
