"""Replaying stored findings: does it still fail, the same way?"""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from kfuzz.contracts.classes import CLASSES
from kfuzz.core.budget import SIZE_BUDGETS
from kfuzz.core.errors import KfuzzError
from kfuzz.core.finding import Finding
from kfuzz.core.fingerprint import host_fingerprint
from kfuzz.core.verdict import CaseReport
from kfuzz.corpus import Problem, Stored
from kfuzz.engine.backend import Backend
from kfuzz.engine.children import Place
from kfuzz.engine.config import ReplayConfig, ReplayOutcome, ReplayResult
from kfuzz.engine.faults import is_beside_page
from kfuzz.engine.lifecycle import SEARCH
from kfuzz.engine.runner import Runner
from kfuzz.engine.served import Stopped
from kfuzz.targets.load import LoadedKernel, Source, load, resolve


def replay(
    stored: Sequence[Stored | Problem], config: ReplayConfig, *, stop: threading.Event
) -> Iterator[ReplayResult]:
    """Run each finding's minimal case in fresh children.

    Args:
        stored: what to replay; entries that cannot be read become ERROR.
        config: how.
        stop: set from outside to end after the current finding.

    Yields:
        One result per entry, in order.
    """
    backends: dict[str, Backend] = {}
    try:
        for entry in stored:
            if stop.is_set():
                return
            if isinstance(entry, Problem):
                yield ReplayResult(
                    None, entry.path, ReplayOutcome.ERROR, 0, 0, entry.what
                )
                continue
            try:
                yield _replayed(entry, config, backends, stop)
            except Stopped:
                return
    finally:
        for backend in backends.values():
            backend.close()


def locate(finding: Finding, config: ReplayConfig) -> LoadedKernel:
    """Load the kernel that a finding speaks of.

    Raises:
        KfuzzError: if its file, module or name is gone.
    """
    target = finding.target
    if config.target:
        sources = resolve(config.target)
    elif target.module:
        sources = [Source(module=target.module)]
    elif target.file:
        sources = resolve(target.file, base=config.root)
    else:
        raise KfuzzError(
            "the finding's kernel has no importable home",
            where=finding.id,
            fix="name it: --target path.py::name",
        )
    source = Source(sources[0].file, sources[0].module, (target.name,))
    return load(source, root=config.root)[0]


def runner_for(
    loaded: LoadedKernel,
    backend: Backend,
    config: ReplayConfig,
    stop: threading.Event,
) -> Runner:
    """Return a runner with every contract class in force."""
    place = Place(
        device=backend.device,
        backend=backend.name,
        budget=SIZE_BUDGETS[backend.name],
        classes=tuple(sorted(CLASSES)),
        root=config.root,
    )
    fork = backend.fork if backend.isolated else None
    return Runner(loaded, place, fork, expired=stop.is_set)


def backend_for(
    finding: Finding, config: ReplayConfig, backends: dict[str, Backend]
) -> Backend:
    """Return the backend to replay on, started once per name."""
    name = config.device or finding.device
    if name not in backends:
        backends[name] = Backend(name, isolate=config.isolate)
        backends[name].quiet = True
    return backends[name]


def _replayed(
    entry: Stored,
    config: ReplayConfig,
    backends: dict[str, Backend],
    stop: threading.Event,
) -> ReplayResult:
    finding, path = entry.finding, entry.path
    try:
        loaded = locate(finding, config)
        backend = backend_for(finding, config, backends)
        kernel = loaded.kernel
        if not kernel.operator.admits(finding.case, kernel.declaration):
            text = "lies outside what the kernel declares now"
            return ReplayResult(finding, path, ReplayOutcome.FIXED, 0, 0, text)
        runner = runner_for(loaded, backend, config, stop)
        if is_beside_page(finding) and not runner.fences:
            text = "it shows beside a page that faults, in a child, only"
            return ReplayResult(finding, path, ReplayOutcome.ERROR, 0, 0, text)
        edge = finding.case.edge
        if edge and edge.allocation is not None and backend.name != "cuda":
            text = "it shows beside a page of its own allocation's, on a GPU only"
            return ReplayResult(finding, path, ReplayOutcome.ERROR, 0, 0, text)
        reports = runner.judge_fresh(finding.case, [SEARCH] * config.times)
        if is_beside_page(finding) and runner.unfenced:
            text = f"it shows beside a page that faults only: {runner.unfenced}"
            return ReplayResult(finding, path, ReplayOutcome.ERROR, 0, 0, text)
    except KfuzzError as error:
        return ReplayResult(finding, path, ReplayOutcome.ERROR, 0, 0, str(error))
    errors = [r.error or r.unsupported for r in reports if r.error or r.unsupported]
    if errors:
        return ReplayResult(
            finding, path, ReplayOutcome.ERROR, 0, len(reports), str(errors[0])
        )
    refusing = next((r for r in reports if r.refusal and not r.failure), None)
    if refusing is not None:
        text = f"the kernel refuses this input now: {refusing.example}"
        return ReplayResult(finding, path, ReplayOutcome.ERROR, 0, len(reports), text)
    return _result(finding, path, reports, runner)


def _result(
    finding: Finding, path: Path, reports: Sequence[CaseReport], runner: Runner
) -> ReplayResult:
    failing = [r for r in reports if r.failure is not None]
    same = [r for r in failing if r.shows(finding.signature)]
    runs = len(reports)
    if len(same) == runs:
        failure = same[0].failure
        assert failure is not None
        return ReplayResult(
            finding, path, ReplayOutcome.FAILS, runs, runs, failure.message
        )
    now = host_fingerprint(device=runner.device_name)
    differences = tuple(finding.fingerprint.differences(now))
    if failing:
        other = failing[0].failure
        assert other is not None
        message = f"{len(same)} of {runs} runs fail as stored"
        if not same:
            message = f"fails another way: {other.contract} {other.kind}"
        return ReplayResult(
            finding, path, ReplayOutcome.FLAKY, len(same), runs, message, differences
        )
    return ReplayResult(
        finding, path, ReplayOutcome.FIXED, 0, runs, "passes now", differences
    )
