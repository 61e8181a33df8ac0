"""`kfuzz.falsify` and `kfuzz.replay`: searches and replays for notebooks and tests."""

import inspect
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.budget import Budget, Scale
from kfuzz.core.errors import BackendError, HarnessError, UsageError, suggestion
from kfuzz.core.event import FindingSaved, KernelFinished, Notice
from kfuzz.core.finding import Finding, Target
from kfuzz.engine.config import ReplayConfig, ReplayResult, RunConfig
from kfuzz.engine.replay import replay as replay_all
from kfuzz.engine.search.campaign import run_kernels
from kfuzz.store.corpus import Stored
from kfuzz.targets.load import LoadedKernel, Source, importing, project_root, target_of


def falsify(
    kernel: BoundKernel | Callable[..., Any],
    *,
    max_cases: int | None = 200,
    max_time: float | None = None,
    seed: int = 0,
    device: str = "auto",
    corpus: str | Path | None = None,
    profile: str = "quick",
) -> list[Finding]:
    """Search for violations of one bound kernel.

    A kernel bound at the top level of a file runs in a child process, which imports
    that file. Any other kernel (in a notebook cell, in a function) runs in this
    process. A crash or hang of such a kernel also ends or blocks this process.

    Args:
        kernel: the value that `kfuzz.kernel(...)` returned.
        max_cases: number of cases; None for no limit.
        max_time: seconds, counted from the first case; None for no limit.
        seed: determines all random choices.
        device: "auto", "cpu", "cuda", "cuda:i" or "interpret".
        corpus: folder that stores the findings; by default none are stored.
        profile: "quick", or "large" for tensors above 2^31 elements, more than
            65,535 rows, and strides that span gigabytes, on a GPU.

    Returns:
        The findings, each with its smallest input and its cause.

    Raises:
        UsageError: if the kernel is not bound, a limit is not positive, both limits
            are None, or kfuzz is importing the kernel's file.
        BackendError: if the kernel needs a GPU and there is none.
        HarnessError: if no value was compared, for example because the kernel's source
            cannot be built or the kernel rejects every case.
    """
    _require_no_import()
    if not isinstance(kernel, BoundKernel):
        raise UsageError(
            f"{kernel!r:.60} is not bound to an operator",
            fix="bind it: kfuzz.kernel(ops.softmax)(function)",
        )
    if max_cases is None and max_time is None:
        raise UsageError("neither max_cases nor max_time is given")
    root = project_root()
    loaded, isolate = _home_of(kernel, root)
    with tempfile.TemporaryDirectory(prefix="kfuzz-") as scratch:
        config = RunConfig(
            targets=(),
            root=root,
            corpus=Path(corpus) if corpus is not None else Path(scratch),
            seed=seed,
            budget=Budget(max_time=max_time, max_cases=max_cases),
            device=device,
            isolate=isolate,
            scale=_scale(profile),
        )
        found: dict[str, Finding] = {}
        told = []
        for event in run_kernels(config, [loaded], stop=threading.Event()):
            match event:
                case FindingSaved(stage="done"):
                    found[event.finding.id] = event.finding
                case Notice():
                    told.append(event.message)
                case KernelFinished(needs_gpu=True) if not found:
                    raise BackendError("; ".join(told), where=kernel.name)
                case KernelFinished(uncompared=why) if why and not found:
                    text = "; ".join([f"no value was compared: {why}", *told])
                    raise HarnessError(text, where=kernel.name)
    return list(found.values())


def replay(
    finding: Finding, *, times: int = 3, device: str | None = None, target: str = ""
) -> ReplayResult:
    """Run the minimal case of a finding again, in fresh child processes.

    Args:
        finding: from `falsify` or a corpus.
        times: number of runs.
        device: as for `falsify`; by default the backend of the original run.
        target: the kernel's new place, "path.py::name", if it has moved.

    Returns:
        The outcome (FIXED, FAILS, FLAKY or ERROR), with the number of failing runs.

    Raises:
        UsageError: if kfuzz is importing the kernel's file.
    """
    _require_no_import()
    root = project_root()
    config = ReplayConfig(
        root=root,
        corpus=root / "corpus",
        times=times,
        device=device,
        target=target,
        keep=False,
        trusted=None,  # the caller's own program, which imports what it likes
    )
    stored = Stored(finding, root / "corpus" / finding.folder)
    return next(replay_all([stored], config, stop=threading.Event()))


def _scale(profile: str) -> Scale:
    scales = {"quick": Scale.USUAL, "large": Scale.LARGE}
    if profile not in scales:
        raise UsageError(f"{profile!r} is no profile here", fix=suggestion("", scales))
    return scales[profile]


def _require_no_import() -> None:
    """Raise if a child is importing the file that asks for the search."""
    target = importing()
    if target is not None:
        raise UsageError(
            "called while kfuzz imports this file",
            where=target,
            fix='put the call under `if __name__ == "__main__":`',
        )


def _home_of(kernel: BoundKernel, root: Path) -> tuple[LoadedKernel, str]:
    """Return the kernel with its importable home, and how to isolate it."""
    try:
        file = Path(inspect.getfile(inspect.unwrap(kernel.function))).resolve()
    except TypeError:
        file = None
    own = getattr(sys.modules.get(kernel.module), "__file__", None)
    bound_in = Path(own).resolve() if own else file
    if (
        not kernel.top_level
        or bound_in is None
        or not os.path.isfile(bound_in)
        or bound_in.suffix != ".py"
    ):
        target = Target(file="", name=kernel.name)
        return LoadedKernel(kernel, target, Source()), "none"
    source = Source(file=bound_in, only=(kernel.name,))
    return LoadedKernel(kernel, target_of(source, kernel, root), source), "auto"
