"""Replaying stored findings: does it still fail, the same way?"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kfuzz.core.budget import Depth
from kfuzz.core.errors import BackendError, BindingError, KfuzzError, UsageError
from kfuzz.core.event import Event, FindingSaved, Notice
from kfuzz.core.features import needed
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import ReplayOutcome, State
from kfuzz.engine import scripts
from kfuzz.engine.config import ReplayConfig, ReplayResult
from kfuzz.engine.confirm import is_by_chance, process
from kfuzz.engine.workers.jobs import Halt, Stopped, in_order, processors
from kfuzz.engine.workers.runner import Runner, is_beside_page, runner_of
from kfuzz.engine.workers.zygotes import Backend, home_of
from kfuzz.execution.device.backends import resolve
from kfuzz.store.corpus import Corpus, Problem, Stored
from kfuzz.store.life import REGRESSED, covering, enter, merged, under
from kfuzz.targets.load import LoadedKernel, Source, is_of_project, load, resolve_one

MOST_JOBS: Final = 8
"""Findings replayed side by side where nobody says how many."""


def replay(
    stored: Sequence[Stored | Problem],
    config: ReplayConfig,
    *,
    stop: threading.Event,
    backend: Backend | None = None,
    loaded: Mapping[str, LoadedKernel] = MappingProxyType({}),
) -> Iterator[ReplayResult]:
    """Run each finding's minimal case in fresh children.

    Args:
        stored: what to replay; entries that cannot be read become ERROR.
        config: how; several side by side share one zygote, or are divided among GPUs.
        stop: set from outside to end after the current findings.
        backend: one that is up, for the findings of its device.
        loaded: kernels by name, whose findings need not say where they live.

    Yields:
        One result per entry, in order.

    Raises:
        UsageError: before the first result, if the target of `config` names no one
            kernel.
        BackendError: before the first result, if the device of `config` is not there.
    """
    require_target(stored, config)
    if config.device is not None and backend is None:
        resolve(config.device)
    jobs = config.jobs or jobs_for(stored, config.device, backend)
    # All work has ended before its backends do, also where a caller takes no more.
    with (
        closing(_Replays(config, stop, backend, loaded, jobs)) as work,
        closing(in_order(work.of, stored, jobs, halt=work.halt)) as results,
    ):
        for result in results:
            if result is None:
                return
            yield result


def jobs_for(
    stored: Sequence[Stored | Problem], device: str | None, backend: Backend | None
) -> int:
    """Return how many findings are replayed side by side where nobody says."""
    most = max(min(len(stored), MOST_JOBS), 1)
    if backend is not None:
        used = [(backend.on, backend.devices)]
    else:
        names = {device or e.finding.device for e in stored if isinstance(e, Stored)}
        used = []
        for name in names:
            with suppress(BackendError):  # whoever replays there says so
                used.append(resolve(name))
    # What else a GPU does may change what shows: one finding at a time.
    gpus = [len(devices) for on, devices in used if on.has.asynchronous]
    return min(max(gpus, default=max(processors() // 2, 1)), most)


class _Replays:
    """Replays findings for several threads, which share what is slow to begin."""

    def __init__(
        self,
        config: ReplayConfig,
        stop: threading.Event,
        leased: Backend | None,
        loaded: Mapping[str, LoadedKernel],
        jobs: int,
    ) -> None:
        self._jobs = jobs
        self._config, self._stop = config, Halt(stop, config.until)
        self._loaded = loaded
        self._corpus = Corpus(config.corpus)
        self._marks = cache(self._corpus.marks)
        self._leased = leased
        self._backends = {} if leased is None else {leased.name: leased}
        # Importing a file and starting a zygote are done by one thread at a time.
        self._starting = threading.Lock()
        # What runs in this process, or sets up what contains a candidate, is alone.
        self._alone = threading.Lock()

    def halt(self) -> None:
        """Have replays under way end soon."""
        self._stop.set()

    def close(self) -> None:
        """End every child."""
        for backend in self._backends.values():
            if backend is not self._leased:
                backend.close()

    def of(self, entry: Stored | Problem) -> ReplayResult | None:
        """Return what came of one entry; None once the replay is to stop."""
        if self._stop.is_set():
            return None
        if isinstance(entry, Problem):
            outcome = ReplayOutcome.ERROR
            return ReplayResult(None, entry.path, outcome, 0, 0, entry.what)
        finding = entry.finding
        try:
            with self._starting:
                known = covering(self._marks(finding.signature.kernel), finding)
                backend = self._backend_for(finding)
                loaded = self._kernel_of(finding, backend)
        except Stopped:
            return None
        except KfuzzError as error:
            outcome = ReplayOutcome.ERROR
            return ReplayResult(finding, entry.path, outcome, 0, 0, str(error))
        apart = backend.isolated and not finding.target.reference
        try:
            with nullcontext() if apart else self._alone:
                made = _replayed(entry, loaded, backend, self._config, self._stop)
        except Stopped:
            return None
        if known is not None:
            made = replace(made, finding=under(known, finding))
        again = made.outcome is ReplayOutcome.FAILS and finding.state is State.FIXED
        if again and not self._config.target:
            made = self._regressed(entry, made)
        return replace(made, by_chance=is_by_chance(finding.signature))

    def _backend_for(self, finding: Finding) -> Backend:
        started = set(self._backends)
        backend = backend_for(finding, self._config, self._backends)
        if self._jobs == 1 and set(self._backends) != started:
            backend.use(backend.devices[:1])
        return backend

    def _kernel_of(self, finding: Finding, backend: Backend) -> LoadedKernel:
        loaded = self._loaded.get(finding.signature.kernel)
        if loaded is None:
            if not finding.target.reference:
                # What a file does as it is imported is not to end the other replays.
                home = home_of(source_of(finding, self._config), self._config.root)
                backend.require_import(home, self._stop.is_set)
            return locate(finding, self._config)
        require_operator(finding, loaded)
        return loaded

    def _regressed(self, entry: Stored, made: ReplayResult) -> ReplayResult:
        """Return the result with the finding regressed, and tell the corpus."""
        message = f"{REGRESSED}: {made.message}"
        if self._config.keep:
            message += keep_regressed(self._corpus, entry)
        return replace(made, finding=_again(entry.finding), message=message)


def keep_regressed(corpus: Corpus, entry: Stored) -> str:
    """Tell a corpus of a fixed finding of its own that fails again.

    Returns:
        Why it could not be told, as it stands behind a message; "" if it was.
    """
    place = corpus.root / entry.finding.folder
    if os.path.abspath(place) != os.path.abspath(entry.path):
        return ""
    try:
        corpus.change(entry.finding, _again)
    except KfuzzError as error:
        return f" (the corpus was not updated: {error})"
    return ""


def _again(now: Finding | None) -> Finding | None:
    """Return a fixed finding as regressed, any other as it is."""
    if now is None or now.state is not State.FIXED:
        return now
    return enter(now, State.REGRESSED, REGRESSED)


def locate(finding: Finding, config: ReplayConfig) -> LoadedKernel:
    """Load the kernel that a finding speaks of, or the one given in its place.

    Raises:
        KfuzzError: if its file, module or name is gone, or it is bound to another
            operator than the finding's.
    """
    target = finding.target
    if target.reference:
        opened: LoadedKernel = needed("opener", target.reference)(finding, config)
        return opened
    loaded = load(source_of(finding, config), root=config.root)[0]
    require_operator(finding, loaded)
    if loaded.kernel.name == target.name:  # it may bear another in its findings
        loaded = replace(loaded, alias=finding.signature.kernel)
    return loaded


def source_of(finding: Finding, config: ReplayConfig) -> Source:
    """Return what is imported for the kernel that a finding speaks of.

    Raises:
        KfuzzError: if it names nothing that can be.
    """
    target = finding.target
    if config.target:
        return resolve_one(config.target, target.name)
    if target.module:
        _require_trusted(target.module, config)
        return Source(module=target.module, only=(target.name,))
    if target.file:
        return resolve_one(target.file, target.name, base=config.root)
    raise KfuzzError(
        "the finding's kernel has no importable home, or one outside the project",
        fix="name it: --target path.py::name",
    )


def _require_trusted(module: str, config: ReplayConfig) -> None:
    """Check that a module may be imported because a finding names it.

    Raises:
        UsageError: if it is neither the project's nor trusted.
    """
    trusted = config.trusted
    if trusted is None or any(f"{module}.".startswith(f"{t}.") for t in trusted):
        return
    if not is_of_project(module, config.root):
        raise UsageError(
            f"the finding names the module {module!r:.80}, which lies outside the "
            "project: importing it runs its code",
            fix="if you trust it, give --trust, or name it in targets of [tool.kfuzz]",
        )


SANITIZERS: Final = ("fpsan", "gsan", "consan", "iisan", "racecheck")
"""Modes of Triton's own instrumentation, and a tool of compute-sanitizer."""

_INSTRUMENTED: Final = (3, 8)
_RACECHECKED: Final = (
    "--tool racecheck --error-exitcode 1 --target-processes application-only "
    "--launch-timeout 0"
)


def sanitized(finding: Finding, config: ReplayConfig, mode: str) -> int:
    """Run the script of a finding on a GPU with kernels that are instrumented.

    What it prints goes where this process prints.

    Returns:
        The script's exit code.

    Raises:
        BackendError: if there is no such instrumentation, or no GPU.
        KfuzzError: if the finding cannot be run, or may not be.
    """
    tool = shutil.which("compute-sanitizer") if mode == "racecheck" else ""
    if tool is None:
        raise BackendError(
            "--sanitizer racecheck needs compute-sanitizer, which is not on PATH",
            fix="install the CUDA toolkit, and add its bin folder to PATH",
        )
    has = version("triton") if find_spec("triton") else "none"
    if not tool and tuple(int(n) for n in re.findall(r"\d+", has)[:2]) < _INSTRUMENTED:
        raise BackendError(
            f"--sanitizer {mode} needs Triton 3.8 or later; installed: {has}",
            fix="pip install 'triton>=3.8'",
        )
    backend, _ = resolve(config.device or "cuda")
    if backend.environment:  # nothing is compiled there
        raise BackendError(f"--sanitizer {mode} needs a GPU", fix="--device cuda")
    if not config.target and finding.target.module:
        _require_trusted(finding.target.module, config)
    text = scripts.script(replace(finding, device=backend.name), config.target)
    environment, command = dict(os.environ), [sys.executable]
    if tool:
        command = [tool, *_RACECHECKED.split(), *command]
    else:
        environment["TRITON_INSTRUMENTATION_MODE"] = mode
    if mode == "gsan":  # its shadow of memory needs allocations of its own
        command += ["-m", "triton.tools.gsan"]
    with tempfile.TemporaryDirectory(prefix="kfuzz-") as folder:
        path = Path(folder) / "finding.py"
        path.write_text(text, encoding="utf-8")
        command.append(str(path))
        return subprocess.run(
            command, cwd=config.root, env=environment, check=False
        ).returncode


def require_operator(finding: Finding, loaded: LoadedKernel) -> None:
    """Check that a kernel is to compute what the finding is about.

    Raises:
        BindingError: if it is not: whether it passes says nothing of the finding.
    """
    operator = loaded.kernel.operator
    if finding.operator not in (operator.name_in_contracts, operator.name):
        raise BindingError(
            f"{loaded.node_id} is bound to {operator.name}, the finding is of "
            f"{finding.operator}",
            fix="name a kernel of that operator with --target, or remove the finding",
        )


def require_target(stored: Sequence[Stored | Problem], config: ReplayConfig) -> None:
    """Check once, not for each finding, that what is given in its place is one kernel.

    Candidates are named in another way, and looked for when they are replayed.

    Raises:
        UsageError: if it is not.
    """
    findings = [entry.finding for entry in stored if isinstance(entry, Stored)]
    if config.target and any(not f.target.reference for f in findings):
        resolve_one(config.target, "kernel")


def runner_for(
    loaded: LoadedKernel,
    backend: Backend,
    config: ReplayConfig,
    stop: threading.Event | Halt,
) -> Runner:
    """Return a runner with every contract class in force.

    Its children print nothing: a crash would print its stack each time.
    """
    return runner_of(
        loaded, backend, root=config.root, expired=stop.is_set, quiet=lambda: True,
        device=backend.turn(),
    )  # fmt: skip


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
    loaded: LoadedKernel,
    backend: Backend,
    config: ReplayConfig,
    stop: Halt,
) -> ReplayResult:
    finding = entry.finding

    def came_to(
        outcome: ReplayOutcome, text: str, same: int = 0, runs: int = 0
    ) -> ReplayResult:
        return ReplayResult(finding, entry.path, outcome, same, runs, text)

    try:
        kernel = loaded.kernel
        if not kernel.operator.accepts(finding.case, kernel.declaration):
            text = "lies outside what the kernel declares now"
            return came_to(ReplayOutcome.FIXED, text)
        runner = runner_for(loaded, backend, config, stop)
        if why := _hidden(finding, runner):
            return came_to(ReplayOutcome.ERROR, why)
        try:
            reports = runner.judge_fresh(finding.case, [Depth.SEARCH] * config.times)
        finally:
            runner.close()
        if why := _hidden(finding, runner):  # known once a child has tried
            return came_to(ReplayOutcome.ERROR, why)
    except KfuzzError as error:
        return came_to(ReplayOutcome.ERROR, str(error))
    runs = len(reports)
    if errors := [
        r.error or r.unsupported for r in reports if r.error or r.unsupported
    ]:
        return came_to(ReplayOutcome.ERROR, errors[0] or "", runs=runs)
    failures = [r.failure for r in reports if r.failure is not None]
    refusing = next((r for r in reports if r.refusal and not r.failure), None)
    if refusing is not None:
        text = f"the kernel rejects this input now: {refusing.example}"
        return came_to(ReplayOutcome.ERROR, text, runs=runs)
    same = sum(r.shows(finding.signature) for r in reports)
    if same == runs:
        return came_to(ReplayOutcome.FAILS, failures[0].message, same, runs)
    if same:
        text = f"{same} of {runs} runs fail as stored"
        made = came_to(ReplayOutcome.FLAKY, text, same, runs)
    elif failures:
        text = f"fails another way: {failures[0].contract} {failures[0].kind}"
        made = came_to(ReplayOutcome.FLAKY, text, runs=runs)
    else:
        made = came_to(ReplayOutcome.FIXED, "passes now", runs=runs)
    differences = finding.fingerprint.differences(runner.fingerprint())
    return replace(made, differences=tuple(differences))


def _hidden(finding: Finding, runner: Runner) -> str:
    """Return why a finding beside a page that faults cannot show here, "" if it can."""
    edge = finding.case.edge
    if is_beside_page(finding):
        if not runner.children.fences:
            return "it shows beside a page that faults, in a child, only"
        if runner.children.unfenced:
            return (
                f"it shows beside a page that faults only: {runner.children.unfenced}"
            )
    if edge and edge.allocation is not None and runner.place.has.on_host:
        return "it shows beside a page of its own allocation's, on a GPU only"
    return ""


# Shrinking a stored finding again, further, or after its kernel changed.

# A person waits for this one finding; a run gives each less.
SHRINK_SECONDS = 300.0


def shrink(
    stored: Stored, config: ReplayConfig, *, stop: threading.Event
) -> Iterator[Event]:
    """Reduce and explain a finding, and store the result.

    Yields:
        `FindingSaved` as it shrinks, and a `Notice` where it does not fail.

    Raises:
        KfuzzError: if the entry's kernel cannot be loaded.
        UsageError: if what `config` gives in its place bears another name.
    """
    corpus = Corpus(config.corpus)
    finding = stored.finding
    loaded = locate(finding, config)
    if loaded.name != finding.signature.kernel:
        raise UsageError(
            f"the finding is of {finding.signature.kernel!r}, and is stored anew as it "
            "shrinks",
            where=f"--target {config.target}",
            fix="name the kernel of that name, where it lives now",
        )
    backends: dict[str, Backend] = {}
    try:
        backend = backend_for(finding, config, backends)
        runner = runner_for(loaded, backend, config, stop)
        last, path = finding, stored.path
        saved: list[Finding] = []

        def save(now: Finding) -> Finding:
            nonlocal last, path
            if now.state in (State.FLAKY, State.UNREPRODUCED):
                return now  # a stored minimum is not given up for that
            held = corpus.get(last)
            told = merged(held.finding if held else finding, now)
            kept = replace(now, state=told.state, history=told.history, mark=told.mark)
            path = corpus.replace(last, kept)
            last = kept
            saved.append(kept)
            return kept

        try:
            case = finding.case if finding.case.pinned else runner.pin(finding.case)
            final = process(
                runner,
                replace(finding, case=case),
                seconds=lambda: SHRINK_SECONDS,
                stopped=stop.is_set,
                save=save,
            )
        except Stopped:
            return
        finally:
            runner.close()
        node_id = loaded.node_id
        if not saved:
            text = f"{finding.id} does not fail any more: {final.state}"
            if changed := finding.fingerprint.differences(runner.fingerprint()):
                text += f"; the environment differs: {'; '.join(changed)}"
            yield Notice(node_id, text)
            return
        yield FindingSaved(node_id, last, str(path), False, "done")
    finally:
        for backend in backends.values():
            backend.close()
