"""What a run asks of the device, of processes and of its corpus before it begins.

A corpus sorts findings by name: kernels of one name that live in two places are told
from one another.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from kfuzz.core.budget import Scale
from kfuzz.core.errors import BackendError, UsageError
from kfuzz.core.finding import Target
from kfuzz.engine.config import RunConfig
from kfuzz.engine.workers.backend import Backend
from kfuzz.engine.workers.processors import PROCESSORS_EACH, SHARING, processors
from kfuzz.execution.device.backend import DeviceBackend
from kfuzz.execution.memory import host_fences as pages
from kfuzz.store.corpus import Corpus
from kfuzz.targets.homes import binds, file_of_module, home_of
from kfuzz.targets.load import LoadedKernel


def require_device(scale: Scale, backend: DeviceBackend) -> None:
    """Check that the device can have cases of a profile.

    Raises:
        BackendError: if it cannot.
    """
    if scale is Scale.LARGE and not backend.has.large:
        raise BackendError(
            f"billions of elements take minutes on the backend {backend.name!r}",
            where="profile large",
            fix="run it on a GPU, or leave the profile out: views that span gigabytes "
            "are searched on the CPU anyway",
        )


def require_processes(config: RunConfig) -> None:
    """Check that kernels that are to be searched side by side have processes.

    Raises:
        UsageError: if they have not.
    """
    if config.isolate == "none" and (config.jobs or 1) > 1:
        raise UsageError(
            "in one process kernels are searched one after the other",
            where=f"--jobs {config.jobs} --isolate none",
            fix="leave one of them out",
        )


def jobs_of(config: RunConfig, backend: Backend, kernels: int) -> int:
    """Return how many kernels are searched side by side.

    One for each processor, on GPUs `SHARING` for each if there are processors for them,
    unless the run says how many.
    """
    if not backend.isolated:
        return 1
    devices = len(backend.devices)
    most = processors()
    if backend.on.has.asynchronous:
        each = most // (PROCESSORS_EACH * devices)
        most = devices * max(min(each, SHARING), 1)
    wanted = config.jobs or most
    if config.scale is Scale.LARGE:  # the memory of a device is enough for one
        wanted = min(wanted, devices)
    return max(min(wanted, kernels), 1)


def no_fences(backend: Backend) -> str:
    """Return why no argument lies beside a page that faults.

    Returns:
        "" if some do, if a child will say so, and in the interpreter, which checks
        addresses instead.
    """
    if not backend.on.has.native:
        return ""
    if not backend.isolated:
        return "a page that faults would end this process, which runs the kernels"
    if backend.on.has.asynchronous or pages.available():
        return ""
    return "pages that fault cannot be made here"


# Below it are torch's own kernels, whose names no file writes down, once for each
# backend: these are the same kernels.
_PLATFORM: Final = "kfuzz.contracts.platform."


def named_apart(
    loaded: Sequence[LoadedKernel],
    homes_of: Callable[[str], Sequence[Target]],
    root: Path,
) -> list[LoadedKernel]:
    """Return a run's kernels, each with a name of its own for its findings.

    Else what is known of one kernel would be known of another. A kernel bears its full
    name where findings of another kernel are stored under its own, where its own are
    stored under the full one, and where the run has two of one name of which nothing is
    stored.

    Where the kernel of an entry has gone from its place, it has moved: the entry is
    taken for the run's. Entries that name no place (of notebooks, of files outside the
    project) are too, and so is anything of a kernel that has none. Candidates bear a
    name for each path.

    Args:
        loaded: the run's kernels.
        homes_of: returns where the entries of the corpus under a name say that its
            kernel lives.
        root: the project.
    """
    counts = Counter(kernel.kernel.name for kernel in loaded)
    made = []
    for kernel in loaded:
        here = _file_of(kernel, root)
        alias = ""
        if here is not None:
            homes = homes_of(kernel.kernel.name)
            own = kernel.target in homes
            taken = any(
                other != kernel.target and _is_elsewhere(other, kernel, here, root)
                for other in homes
            )
            shared = counts[kernel.kernel.name] > 1 and not own
            if taken or shared or kernel.target in homes_of(kernel.full_name):
                alias = kernel.full_name
        made.append(replace(kernel, alias=alias))
    return made


def kernels_of(config: RunConfig, loaded: Sequence[LoadedKernel]) -> list[LoadedKernel]:
    """Return the kernels that a campaign searches, of those of its targets.

    Each bears a name of its own, see `named_apart`.
    """
    if (chosen := config.chosen) is None:
        return named_apart(loaded, Corpus(config.corpus).homes, config.root)
    found = [kernel for kernel in loaded if kernel.kernel.name == chosen.name]
    return [replace(kernel, alias=chosen.alias) for kernel in found]


def _is_elsewhere(other: Target, kernel: LoadedKernel, here: Path, root: Path) -> bool:
    """Whether an entry's kernel is another one than a run's, and is still there."""
    if other.reference or other.name != kernel.kernel.name:
        return False
    if other.module.startswith(_PLATFORM):
        return not kernel.target.module.startswith(_PLATFORM)
    there = home_of(other, root)
    return there is not None and there != here and binds(there, other.name)


def _file_of(kernel: LoadedKernel, root: Path) -> Path | None:
    """Return the file of a run's kernel; None of a candidate or a notebook's."""
    source = kernel.source
    if source.file is None and source.module:
        return file_of_module(source.module, root)
    return source.file
