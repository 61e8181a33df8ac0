"""Replacing attributes of a module or class for a while."""

from inspect import isdatadescriptor
from typing import Any, Final, Self

_ABSENT: Final = object()


class Patches:
    """Attributes replaced for a while."""

    def __init__(self) -> None:
        # Owner, name, what was there, what is there now.
        self._made: list[tuple[Any, str, object, object]] = []

    def set(self, owner: Any, name: str, value: object) -> None:
        """Replace an attribute, or add it."""
        before = vars(owner).get(name, _ABSENT)
        if before is _ABSENT and isdatadescriptor(getattr(type(owner), name, None)):
            before = getattr(owner, name)  # as the code of a function
        self._made.append((owner, name, before, value))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Restore everything, last first."""
        while self._made:
            owner, name, before, _ = self._made.pop()
            _put(owner, name, before)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.undo()

    def again(self) -> "Again":
        """Return what makes the same patches again."""
        return Again(self._made)


class Again:
    """The patches of some owners, to be made again and again."""

    def __init__(self, made: list[tuple[Any, str, object, object]]) -> None:
        """Take patches in the order in which they were made."""
        self._first: dict[tuple[int, str], tuple[Any, str, object]] = {}
        self._last: dict[tuple[int, str], object] = {}
        for owner, name, before, value in made:
            self._first.setdefault((id(owner), name), (owner, name, before))
            self._last[id(owner), name] = value

    def make(self, patches: Patches) -> bool:
        """Make them; return whether all is still there that they replaced."""
        first = self._first.values()
        if any(vars(o).get(name, _ABSENT) is not was for o, name, was in first):
            return False
        for key, (owner, name, _) in self._first.items():
            patches.set(owner, name, self._last[key])
        return True


def _put(owner: Any, name: str, value: object) -> None:
    if value is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, value)
