"""The process that searches: it judges cases of a kernel in Triton's interpreter."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import torch

from kfuzz.contracts.binding import REGISTRY, BoundKernel
from kfuzz.contracts.classes import CLASSES
from kfuzz.core.budget import Depth
from kfuzz.core.recipe import Case
from kfuzz.evaluation.evaluator import Evaluator, Setting
from kfuzz.execution.device.backend import INTERPRET
from kfuzz.execution.launches.building import end, served
from kfuzz.features.prove.sampling import drawn
from kfuzz.targets.load import Source, load


@dataclass(frozen=True)
class Unit:
    """One kernel.

    Attributes:
        id: its name in the tables.
        file: of a kernel that a file binds; "" where a module does.
        module: of a witness.
        kernel: the bound kernel's name.
    """

    id: str
    kernel: str
    file: str = ""
    module: str = ""

    def load(self) -> BoundKernel:
        """Import what binds it."""
        if self.file:
            source = Source(file=Path(self.file), only=(self.kernel,))
            return load(source, root=Path(self.file).parent)[0].kernel
        import_module(self.module)
        return next(b for b in REGISTRY[self.module] if b.name == self.kernel)


@dataclass(frozen=True)
class Asked:
    """What is to be judged."""

    unit: Unit
    cases: int
    examples: Sequence[Case] = ()
    seconds: float = 20.0


def judged(asked: Asked) -> tuple[list[str], list[str], int]:
    """Return how each example fails, how drawn cases fail, and how many there were.

    A failure by its kind; "" of an example that does not fail.
    """
    kernel = asked.unit.load()
    setting = Setting(torch.device("cpu"), INTERPRET.limits.sizes, frozenset(CLASSES))
    evaluator = Evaluator(kernel, setting)

    def kind(case: Case) -> str:
        failure = evaluator.judge(case, Depth.SEARCH).failure
        return "" if failure is None else str(failure.kind)

    until = time.monotonic() + asked.seconds
    shown = [kind(case) for case in asked.examples]
    found: dict[str, None] = {}
    done = 0
    for case in drawn(kernel, asked.cases * 2):
        if done >= asked.cases or time.monotonic() > until:
            break
        if case.elements > 1 << 13:
            continue
        done += 1
        if symptom := kind(case):
            found[symptom] = None
    return shown, list(found), done


def main() -> None:
    """Judge what is asked for, one message after the other."""
    connection = served()
    while True:
        asked: Asked = connection.recv()
        try:
            connection.send(judged(asked))
        except Exception as error:
            connection.send(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    with contextlib.suppress(EOFError, OSError):
        main()
    end()
