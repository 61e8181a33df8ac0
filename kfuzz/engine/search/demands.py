"""What a run asks of the device and of processes, and what it gets."""

from kfuzz.core.budget import Scale
from kfuzz.core.errors import BackendError, UsageError
from kfuzz.engine.config import RunConfig
from kfuzz.engine.workers.backend import Backend
from kfuzz.engine.workers.processors import processors
from kfuzz.execution.memory import pages


def require_device(scale: Scale, backend: str) -> None:
    """Check that the device can have cases of a profile.

    Raises:
        BackendError: if it cannot.
    """
    if scale is Scale.LARGE and backend != "cuda":
        raise BackendError(
            f"billions of elements take minutes on the backend {backend!r}",
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
    most = len(backend.devices) if backend.name == "cuda" else processors()
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
    if backend.name == "interpret":
        return ""
    if not backend.isolated:
        return "a page that faults would end this process, which runs the kernels"
    if backend.name == "cuda" or pages.available():
        return ""
    return "pages that fault cannot be made here"
