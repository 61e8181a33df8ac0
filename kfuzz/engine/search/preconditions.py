"""What a run asks of the device, of processes and of its corpus before it begins.

A corpus sorts findings by name: kernels of one name that live in two places are told
from one another.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kfuzz.core.budget import Scale
from kfuzz.core.errors import BackendError, BindingError, UsageError
from kfuzz.core.finding import Target
from kfuzz.engine.config import RunConfig
from kfuzz.engine.workers.backend import Backend
from kfuzz.engine.workers.processors import processors
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

    One for each processor, on GPUs one for each, unless the run says how many.
    """
    if not backend.isolated:
        return 1
    exclusive = backend.on.has.asynchronous
    most = len(backend.devices) if exclusive else processors()
    wanted = config.jobs or most
    if config.scale is Scale.LARGE:  # the memory of a device is enough for one
        wanted = min(wanted, most)
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


def require_own_entries(
    loaded: Sequence[LoadedKernel], corpus: Corpus, root: Path
) -> None:
    """Check that what is stored under the names of a run's kernels is theirs.

    Else what is known of one kernel would be known of another. Where the kernel of an
    entry has gone from its place, it has moved: the entry is taken for the run's.
    Entries that name no place (of notebooks, of files outside the project) are too, and
    so is anything of a kernel that has none. Candidates bear a name for each path.

    Args:
        loaded: the run's kernels.
        corpus: where their findings will be stored; only entries under their names are
            looked at.
        root: the project.

    Raises:
        BindingError: if an entry is of another kernel, which is where it was.
    """
    for kernel in loaded:
        here = _file_of(kernel, root)
        if here is None:
            continue
        for other in corpus.homes(kernel.kernel.name):
            if other != kernel.target and _is_elsewhere(other, kernel, here, root):
                raise BindingError(
                    f"{kernel.outside or kernel.node_id} has the name of "
                    f"{other.node_id}, of which findings are stored",
                    where=str(corpus.root),
                    fix="the corpus sorts findings and marks by kernel name: give this "
                    'kernel another with kernel(…, name="…"), or another folder to '
                    "its findings with --corpus",
                )


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
