"""Whether what a case launches builds for GPUs that are not here.

The kernel is called in a process whose Triton compiles, on tensors without memory, and
its launches are compiled for each GPU. That process is
sent what is to be loaded, then cases.
"""

from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.evidence import Builds, Mismatch
from kfuzz.core.errors import HarnessError, KfuzzError
from kfuzz.core.recipe import Case, config_of
from kfuzz.execution.calls.compiling import at_work
from kfuzz.execution.launches import building
from kfuzz.execution.launches.capture import NotCapturedError, capture
from kfuzz.execution.launches.gpu_targets import GPU_TARGETS
from kfuzz.execution.processes.child import OwnProcess
from kfuzz.targets.load import load, requested

_ENTRY: Final = "kfuzz.evaluation.building:serve"
LIMIT_SECONDS: Final = 60.0
"""For the launches of one case and all targets, and for loading the kernel."""
_LOST: Final = 2
"""Processes that may be lost before no further one is begun."""


class Builder:
    """Asks of cases whether their launches build; its process begins with the first.

    Args:
        opened: the request with which the kernel was opened.
    """

    def __init__(self, opened: Mapping[str, Any]) -> None:
        self._request = opened
        self._process: OwnProcess | None = None
        self._lost: list[str] = []

    def __call__(self, case: Case, step: Callable[[], None]) -> Builds:
        """Return what came of one case.

        Args:
            case: with its targets; no values are made.
            step: called now and then, for a watchdog.
        """
        if len(self._lost) >= _LOST:
            return Builds(self._lost[-1])
        with at_work():
            try:
                if self._process is None:
                    self._process = building.beside(_ENTRY, interpret=False)
                    self._process.send(self._request)
                told: Builds = self._process.ask(case, LIMIT_SECONDS, step)
                return told
            except HarnessError as error:
                self._process = None
                self._lost.append(f"the process that compiles {error.what}")
        return Builds(self._lost[-1])


class Compiling:
    """Compiles what cases launch, equal launches once."""

    def __init__(self, kernel: BoundKernel) -> None:
        self._kernel = kernel
        self._known: dict[object, tuple[str, str]] = {}

    def built(self, case: Case) -> Builds:
        """Return what came of a case."""
        try:
            captured = capture(self._kernel, case, config=config_of(case))
        except NotCapturedError as error:
            return Builds(f"its launches are not known: {error}")
        if not captured.launches:
            return Builds("it launches no Triton kernel")
        found: dict[str, Mismatch] = {}
        unknown: list[str] = []
        count = 0
        for target in case.targets:
            for launch, function in zip(
                captured.launches, captured.functions, strict=True
            ):
                why, lacks = self._compiled(function, launch, target)
                if lacks:
                    unknown.append(f"{target}: {lacks}")
                    break
                count += 1
                if why and target not in found:
                    named = (*launch.constants, *launch.options.items())
                    given = ", ".join(f"{name}={value}" for name, value in named)
                    found[target] = Mismatch(
                        target, launch.kernel, Path(launch.file).name, launch.line,
                        why, given,
                    )  # fmt: skip
        return Builds("; ".join(unknown), count, tuple(found.values()))

    def _compiled(self, function: Any, launch: Any, target: str) -> tuple[str, str]:
        """Return what does not fit, and why nothing is known of it."""
        try:
            source = building.source_of(function, launch, specialised=True)
            key = (source.hash(), *sorted(launch.options.items()), target)
        except building.NotCompiledError as error:
            return "", str(error)
        except Exception as error:  # what Triton raises on what it does not know
            return "", building.said(error)
        if key not in self._known:
            try:
                made = (
                    building.mismatch(source, launch.options, GPU_TARGETS[target]),
                    "",
                )
            except building.NotCompiledError as error:
                made = f"it is not compiled: {error}", ""
            except building.UnknownTargetError as error:
                made = "", f"this Triton does not compile for it: {error}"
            self._known[key] = made
        return self._known[key]


def serve(connection: Connection) -> None:
    """Load what the first message names; then compile what is sent."""
    request = connection.recv()
    try:
        [loaded] = load(requested(request), root=Path(request["root"]))
    except KfuzzError as error:
        connection.recv()
        connection.send(Builds(f"it does not load where Triton compiles: {error}"))
        return
    compiling = Compiling(loaded.kernel)
    while True:
        connection.send(compiling.built(connection.recv()))
