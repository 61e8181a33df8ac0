"""What a run asks of the device, of processes and of its corpus before it begins.

A corpus sorts findings by name: kernels of one name that live in two places are told
from one another.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from hypothesis.errors import HypothesisException

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.reading import aspects_beyond_core
from kfuzz.core.budget import Depth, Scale, SizeBudget
from kfuzz.core.errors import BackendError, BindingError, UsageError
from kfuzz.core.finding import Target
from kfuzz.core.recipe import CONTIGUOUS, NOWHERE, Case
from kfuzz.core.verdict import VALUE_KINDS, CaseReport, Kind
from kfuzz.engine.config import Engine, RunConfig
from kfuzz.engine.search.round import KernelSearch
from kfuzz.engine.workers.jobs import PROCESSORS_EACH, SHARING, processors
from kfuzz.engine.workers.zygotes import Backend
from kfuzz.evaluation.bindings import (
    examine,
    examine_recipe,
    in_dtype,
    is_brought,
)
from kfuzz.evaluation.calling import broken, defined
from kfuzz.evaluation.drawing import search_round, strategy_of
from kfuzz.execution.device.backends import DeviceBackend
from kfuzz.execution.memory import fences as pages
from kfuzz.execution.processes.wire import free_memory
from kfuzz.targets.forms import Launch
from kfuzz.targets.load import LoadedKernel, file_of_module, home_of, mentions

# What the children of one worker take, about.
_WORKER_BYTES: Final = 1 << 30


def require(config: RunConfig, backend: DeviceBackend) -> None:
    """Check that a run can have what it asks for.

    Raises:
        BackendError: if the device cannot have cases of its profile.
        UsageError: if kernels that are to be searched side by side have no processes.
    """
    if config.scale is Scale.LARGE and not backend.has.large:
        raise BackendError(
            f"billions of elements take minutes on the backend {backend.name!r}",
            where="profile large",
            fix="run it on a GPU, or leave the profile out",
        )
    if config.isolate == "none" and (config.jobs or 1) > 1:
        raise UsageError(
            "in one process kernels are searched one after the other",
            where=f"--jobs {config.jobs} --isolate none",
            fix="leave one of them out",
        )


def jobs_of(config: RunConfig, backend: Backend, kernels: int) -> int:
    """Return how many workers search side by side.

    One for each processor that there is memory for, on GPUs `SHARING` for each if there
    are processors for them, unless the run says how many. Where the time alone ends a
    run several of them search one kernel; else the seed says which cases there are.
    """
    if not backend.isolated:
        return 1
    devices = len(backend.devices)
    most = processors()
    if backend.on.has.asynchronous:
        each = most // (PROCESSORS_EACH * devices)
        most = devices * max(min(each, SHARING), 1)
    most = max(min(most, (free_memory() or 1 << 60) // _WORKER_BYTES), 1)
    wanted = config.jobs or most
    if config.scale is Scale.LARGE:  # the memory of a device is enough for one
        wanted = min(wanted, devices)
    limits, guided = config.budget, config.engine is Engine.ATHERIS
    if limits.max_time is None or limits.max_cases is not None or guided:
        wanted = min(wanted, kernels)
    return max(wanted, 1)


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
        source, alias = kernel.source, ""
        here = source.file
        if here is None and source.module:
            here = file_of_module(source.module, root)
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


def _is_elsewhere(other: Target, kernel: LoadedKernel, here: Path, root: Path) -> bool:
    """Whether an entry's kernel is another one than a run's, and is still there."""
    if other.reference or other.name != kernel.kernel.name:
        return False
    if other.module.startswith(_PLATFORM):
        return not kernel.target.module.startswith(_PLATFORM)
    there = home_of(other, root)
    return there is not None and there != here and mentions(there, other.name)


# What users brought to judge their kernels, tried before a search begins.

# Cases drawn, and how many of them are tried: those nearest to the core domain.
_DRAWN: Final = 24
_TRIED: Final = 4
_ELEMENTS: Final = 2048
# Elements of a tensor below which others are preferred.
_FEW: Final = 8
# Cases on which a kernel and its oracle have to differ, all of them.
_COMPARED: Final = 3


class Bindings:
    """Tries the bindings of a run: first without their kernels, then beside them.

    Args:
        kernels: of the run.
        on_host: whether they run on the CPU, where the oracles are tried.

    Raises:
        BindingError: if what is to judge a kernel can judge no case of it.
    """

    def __init__(self, kernels: Sequence[KernelSearch], *, on_host: bool) -> None:
        self._open: dict[str, tuple[tuple[Case, ...], bool]] = {}
        for kernel in kernels:
            bound = kernel.loaded.kernel
            # A candidate's operator is made of another's model, with rules of its own.
            if kernel.loaded.target.reference:
                continue
            brought = is_brought(bound.operator.forward or bound.operator)
            if bound.operator.forward is not None or not (
                brought or isinstance(bound.function, Launch)
            ):
                continue
            cases = small_cases(bound, kernel.budget)
            if brought:
                self._open[kernel.node_id] = examine(bound, cases, on_host=on_host)
            examine_recipe(bound, cases)

    def compare(self, kernel: KernelSearch) -> None:
        """Hold a kernel's results against its oracle's, once: are they of one kind?

        Raises:
            BindingError: if the oracle raises where the kernel runs, no case gives
                results of one shape, or the oracle alone gives a constant.
        """
        examined = self._open.get(kernel.node_id)
        if examined is None:
            return
        (judged, constant), bound, reports = examined, kernel.loaded.kernel, []
        for case in judged[:_COMPARED]:
            reports.append(kernel.runner.judge(case, Depth.BASE))
            if not _differs(reports[-1], constant=constant):
                break
        else:
            if reports:
                self._refuse(bound, reports)
        self._open.pop(kernel.node_id, None)  # another worker may have been first

    def _refuse(self, bound: BoundKernel, reports: Sequence[CaseReport]) -> None:
        cases = f"in each of {len(reports)} small cases"
        first, where = reports[0].failure, defined(bound.operator.oracle)
        if why := next((r.oracle_raised for r in reports if r.oracle_raised), ""):
            what = f"the oracle raises {cases} where the kernel runs: {why}"
            fix = "It is given tensors there: make what it needs on their device"
        elif first is not None and first.kind is Kind.WRONG_SHAPE:
            what = f"kernel and oracle return different shapes {cases}: {first.message}"
            fix = "Nothing can be compared until both return one shape"
        else:
            what = "the oracle returns a constant, and the kernel does not"
            fix = "Mend the oracle: its result must depend on its inputs"
        raise broken(bound, f"{what} (the oracle is {where})", fix)


def _differs(report: CaseReport, *, constant: bool) -> bool:
    if report.oracle_raised or report.failure is None:
        return bool(report.oracle_raised)
    kind = report.failure.kind
    return kind is Kind.WRONG_SHAPE or (constant and kind in VALUE_KINDS)


def small_cases(kernel: BoundKernel, budget: SizeBudget) -> tuple[Case, ...]:
    """Return a few small cases of a kernel's domain, contiguous, the plainest first.

    Equal for equal kernels; none where drawing gives none.
    """
    found: list[Case] = []

    def take(case: Case) -> None:
        if all(0 < s.numel <= _ELEMENTS for s in case.tensors.values()):
            found.append(_plain(kernel, case))

    try:
        strategy = strategy_of(kernel, budget)
        if strategy is None:
            return ()
        search_round(strategy, take, cases=_DRAWN, seed_value=0)
    except (BindingError, HypothesisException):  # the search says so, or has large ones
        return ()

    def beyond(case: Case) -> tuple[int, bool]:
        aspects = aspects_beyond_core(
            case, kernel.operator, kernel.explicit, finite=True,
            lacking=kernel.arguments.lacking(case.tensors),
        )  # fmt: skip
        return len(aspects), case.elements < len(case.tensors) * _FEW

    return tuple(sorted(found, key=beyond)[:_TRIED])


def _plain(kernel: BoundKernel, case: Case) -> Case:
    """Return a case in the first data type, contiguous and away from any page."""
    tensors = {n: replace(s, strides=None, offset=0) for n, s in case.tensors.items()}
    made = replace(case, tensors=tensors, edge=NOWHERE, layout=CONTIGUOUS)
    return in_dtype(kernel.operator, made, kernel.declaration.dtypes[0])
