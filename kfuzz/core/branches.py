"""The branches of a kernel's own file: what its processes say, taken together."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Branches:
    """What a process saw of the branches of a kernel's file, each told once.

    A branch is known by its first line.

    Attributes:
        entered: branches of functions that were entered for the first time.
        run: branches that ran for the first time.
        whole: whether every call is watched, so that what is not told did not run.
    """

    entered: tuple[int, ...] = ()
    run: tuple[int, ...] = ()
    whole: bool = False


class Reached:
    """The branches that a kernel's processes have told of.

    Attributes:
        entered: branches of functions that were entered.
        run: those of them that ran.
        complete: whether no process can have kept one to itself.
    """

    def __init__(self) -> None:
        """Begin with nothing told."""
        self.entered: set[int] = set()
        self.run: set[int] = set()
        self.complete = True

    def take(self, told: Branches | None) -> None:
        """Take what a process says; None where it does not watch or has died."""
        if told is None:
            self.complete = False
            return
        self.entered.update(told.entered)
        self.run.update(told.run)
        self.complete = self.complete and told.whole

    def missing(self) -> tuple[int, ...]:
        """Return the branches that never ran, in order; none where that is unknown."""
        return tuple(sorted(self.entered - self.run)) if self.complete else ()
