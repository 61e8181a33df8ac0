"""What is closed when a block ends."""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """A context manager that closes itself at the end of its block."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
