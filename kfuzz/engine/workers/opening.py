"""What runs the cases of a kernel of a run: on which device, and in which children."""

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.language import SECOND_CALL_SHARE
from kfuzz.core.budget import SizeBudget
from kfuzz.engine.workers.backend import Backend, budget_for
from kfuzz.engine.workers.children import Anew, Place
from kfuzz.engine.workers.runner import Runner
from kfuzz.engine.workers.templates import home_of
from kfuzz.targets.load import LoadedKernel


@runtime_checkable
class RunsItself(Protocol):
    """A loaded kernel that brings what runs its cases."""

    def runner(self, place: Place, *, expired: Callable[[], bool]) -> Runner:
        """Return what runs its cases."""


def runner_of(
    loaded: LoadedKernel,
    backend: Backend,
    *,
    root: Path,
    expired: Callable[[], bool],
    classes: Collection[str] = frozenset(CLASSES),
    budget: SizeBudget | None = None,
    device: str = "",
    probes: float = 1 / SECOND_CALL_SHARE,
    quiet: Callable[[], bool] | None = None,
) -> Runner:
    """Return what runs the cases of a kernel, the kernel's own if it brings one.

    Args:
        loaded: the kernel.
        backend: where its children are forked.
        root: the project.
        expired: whether the run is over.
        classes: ids of the contract classes in force.
        budget: limits on sizes; those of the kernel on the backend by default.
        device: one of the backend's; its first by default.
        probes: share of the cases that get the sampled probes.
        quiet: tells whether what the children print is dropped.
    """
    device = device or backend.devices[0]
    place = Place(
        device=backend.called(device),
        backend=backend.name,
        budget=budget or budget_for(loaded.kernel, backend.name),
        classes=tuple(sorted(classes)),
        root=root,
        probes=probes,
        seen_as=device,
        beside=backend.beside(device),
    )
    if isinstance(loaded, RunsItself):
        return loaded.runner(place, expired=expired)
    fork = anew = None
    if backend.isolated:
        home = home_of(loaded.source, root)
        fork = partial(backend.fork, quiet, device=device, home=home, expired=expired)
        anew = Anew(
            partial(backend.fork, quiet, device=device),
            partial(backend.shares, home, device),
            partial(backend.distrust, home),
            partial(backend.own_zygote, device),
        )
    return Runner(loaded, place, fork, expired=expired, anew=anew)
