"""What a campaign asks of whatever proves its kernels meanwhile."""

from collections.abc import Callable, Iterator
from typing import Protocol

from kfuzz.core.event import Event
from kfuzz.core.proof import KernelProof
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.round import KernelSearch, Round

Keep = Callable[[KernelSearch, Case, CaseReport], Iterator[Event]]


class Proofs(Protocol):
    """Proofs of the kernels of one run, made beside the search."""

    def examples(
        self, kernel: KernelSearch, this_round: Callable[[float], Round], keep: Keep, *,
        end: float,
    ) -> Iterator[Event]:  # fmt: skip
        """Judge a kernel's counterexamples, once they are there.

        Args:
            kernel: the kernel.
            this_round: returns a round for one case, of the moment at which it ends.
            keep: keeps what fails, and yields what happens.
            end: `time.monotonic()` at which the search ends; infinite for no limit.
        """

    def proof(self, kernel: KernelSearch) -> KernelProof | None:
        """Return what is proved of a kernel; None where nothing is known of it.

        Its premises are held against the launches of the cases that it was tried on.
        """

    def close(self) -> None:
        """End the processes."""


Prover = Callable[[RunConfig], Proofs | None]
"""Returns None where nothing of a run is proved."""
