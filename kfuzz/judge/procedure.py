"""`kfuzz judge`: a candidate nobody vouches for, against a reference somebody does.

First what the problem is worth; then the candidate on the file's own values at the
benchmarked shape; then value families and other shapes, drawn as for any kernel.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from kfuzz.core.budget import Budget
from kfuzz.core.errors import BackendError, HarnessError, KfuzzError, UsageError
from kfuzz.core.event import Event, KernelFinished, Notice, RunFinished
from kfuzz.core.untrusted import Containment
from kfuzz.core.verdict import CHARGED, Verdict
from kfuzz.engine.config import RunConfig
from kfuzz.engine.workers.backend import Backend
from kfuzz.execution.device.backends import resolve
from kfuzz.judge.candidate import Candidate
from kfuzz.judge.case_judging import Judged, claims_of
from kfuzz.judge.kernelbench.audit import Problem, open_problem
from kfuzz.judge.kernelbench.operator import Reference
from kfuzz.judge.loading import candidate_name, judged_classes, loaded_candidate
from kfuzz.judge.outcome import Audit, Coverage, Judgement
from kfuzz.judge.sandbox.circumstances import Circumstances
from kfuzz.judge.sandbox.limits import Limits
from kfuzz.judge.search import Search
from kfuzz.targets import importing

# Cases at the benchmarked shape without which nothing is said to conform.
_LEAST_CASES: Final = 3
# The part that the search gets however long it took to get ready.
_LEAST: Final = 0.4


@dataclass(frozen=True)
class JudgeConfig:
    """What is to be judged, and how long.

    Attributes:
        reference: the reference file.
        candidate: the candidate's.
        root: the project; findings name files relative to it.
        corpus: folder of findings.
        seed: everything drawn depends on it.
        budget: when to stop; at the first confirmed finding by default.
        device: "auto", "cpu", "cuda", "cuda:i" or "interpret".
        benchmarked_only: whether no other shape is tried.
        nonfinite: what is promised of NaN and infinities: "propagate" or "undefined".
        own_kernels_only: whether kernels of a library in place of its own count as a
            violation.
        determinism: "none" where results may follow random numbers of the candidate's
            own, within what is allowed; else "run_to_run".
        claims: what else candidates declare, as `kfuzz.kernel` takes it.
        limits: what the candidate's child may take.
        started: `time.monotonic()` from which the time counts.
        explain: whether findings are reduced and explained; else a confirmed one ends
            the judgement.
    """

    reference: Path
    candidate: Path
    root: Path
    corpus: Path
    seed: int = 0
    budget: Budget = field(default_factory=lambda: Budget(max_findings=1))
    device: str = "auto"
    benchmarked_only: bool = False
    nonfinite: str = "propagate"
    own_kernels_only: bool = False
    determinism: str = "run_to_run"
    claims: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    started: float | None = None
    explain: bool = True


class Judging:
    """One judgement; `events` are to be consumed before it is asked for."""

    def __init__(
        self,
        config: JudgeConfig,
        *,
        opened: Callable[..., Candidate] = Candidate,
        problem: Problem | None = None,
    ) -> None:
        """Take what is asked.

        Args:
            config: what to judge.
            opened: starts the candidate; in a child of its own by default.
            problem: the reference, where it was opened before on this device.
        """
        self._config = config
        self._opened = opened
        self._start = config.started or time.monotonic()
        self._backend, devices = resolve(config.device)
        self._device = devices[0]
        self._problem = problem
        self._judged: Judged | None = None
        self._containment = Containment(())
        self._finished: KernelFinished | None = None
        self._elapsed = 0.0
        self._interrupted = False
        self._broken = self._given_up = ""
        self._is_built = True
        self._on_finite: Verdict | None = None
        self._notices: list[str] = []

    def events(self, *, stop: threading.Event) -> Iterator[Event]:
        """Judge, and tell what happens.

        Raises:
            UsageError: if a file is missing, or the reference is not of the form.
            BackendError: if the device is not there.
        """
        if not os.path.isfile(self._config.candidate):
            raise UsageError("no such file", where=str(self._config.candidate))
        if self._problem is None:
            self._problem = self._opened_problem()
        problem = self._problem
        if problem and problem.reference is not None and not problem.audit.faults:
            yield from self._search(problem.reference, problem.audit, stop)
        self._elapsed = time.monotonic() - self._start

    def _opened_problem(self) -> Problem | None:
        """Return the problem; None where opening it takes longer than an import may."""
        path, seconds = self._config.reference.resolve(), importing.limit()
        try:
            # What watches this process ends an operation that hears of no exception.
            with importing.ended_after(seconds), importing.imported(str(path)):
                return open_problem(path, self._device)
        except importing.OverdueError:
            self._given_up = (
                f"opening the reference was given up after {seconds:.0f} s: "
                f"{importing.way_out(seconds)}"
            )
            return None

    def _search(
        self, reference: Reference, audit: Audit, stop: threading.Event
    ) -> Iterator[Event]:
        config = self._config
        # A candidate judged on it before may have left it with other weights.
        reference.use_drawn(drawn=False)
        stated = {
            "accumulator": audit.accumulator,
            "nonfinite": config.nonfinite,
            "own_kernels_only": config.own_kernels_only,
            "determinism": config.determinism,
            **config.claims,
        }
        if audit.finite:
            stated["nonfinite"] = "undefined"
        claims = claims_of(reference, **stated)
        try:
            loaded = loaded_candidate(
                reference, config.candidate, config.reference, claims,
                name=candidate_name(config.reference, config.candidate, config.root),
                root=config.root,
                backend=self._backend.name, limits=config.limits,
                opened=self._opened, corpus=config.corpus, tells_apart=config.explain,
            )  # fmt: skip
        except UsageError:
            raise
        except KfuzzError as error:
            self._broken = str(error)
            self._is_built = isinstance(error, HarnessError | BackendError)
            return
        self._judged = loaded.judged
        self._judged.candidate.sandbox.phases.begin("search")
        self._judged.candidate.kernel.circumstances = Circumstances(config.seed)
        self._containment = loaded.judged.candidate.sandbox.containment
        # Its time counts from the start, unless getting ready has left little of it.
        limit, now = config.budget.max_time, time.monotonic()
        started = now if limit is None else max(self._start, now - (1 - _LEAST) * limit)
        run = RunConfig(
            targets=(), root=config.root, corpus=config.corpus, seed=config.seed,
            budget=config.budget, device=config.device, isolate="none", burst=1,
            started=started, reduce=config.explain,
        )  # fmt: skip
        backend = Backend(config.device, isolate="none")
        campaign = Search(
            run, stop, backend, [loaded], frozenset(judged_classes()),
            benchmarked_only=config.benchmarked_only, modeless=audit.modeless,
        )  # fmt: skip
        try:
            for event in campaign.events():
                self._take(event)
                yield event
        finally:
            loaded.judged.candidate.close()
            backend.close()

    def _take(self, event: Event) -> None:
        match event:
            case KernelFinished():
                self._finished = event
            case RunFinished():
                self._interrupted = event.interrupted
            case Notice():
                self._notices.append(event.message)
            case _:
                pass

    def judgement(self) -> Judgement:
        """Return the verdict, and what it rests on."""
        config = self._config
        audit = self._problem.audit if self._problem else Audit()
        verdict, reason = self._verdict(audit)
        finished, judged = self._finished, self._judged
        candidate, covered = judged.candidate if judged else None, Coverage()
        if judged:
            calls = judged.candidate.kernel.in_a_row
            covered = replace(judged.tried.coverage, calls=calls)
        return Judgement(
            verdict=verdict,
            reason=reason,
            reference=str(config.reference),
            candidate=str(config.candidate),
            device=self._backend.name,
            device_name=self._backend.device_name(self._device),
            seed=config.seed,
            elapsed_s=self._elapsed,
            interrupted=self._interrupted,
            audit=audit,
            coverage=covered,
            findings=finished.findings if finished else (),
            paths=finished.paths if finished else {},
            contracts=finished.contracts if finished else {},
            refusals=finished.refusals if finished else (),
            notes=finished.notes if finished else (),
            notices=tuple(dict.fromkeys((*self._notices, *self._own_notices()))),
            containment=self._containment.measures,
            launched=tuple(candidate.kernel.kernels) if candidate else (),
            operators=tuple(candidate.kernel.operators) if candidate else (),
            weights=candidate.weights if candidate else "",
            on_finite=self._on_finite,
            is_built=self._is_built,
            phases=candidate.sandbox.phases.seconds if candidate else {},
            cut_off=(
                verdict is Verdict.UNDER_SPECIFIED
                and _was_cut_off(judged)
                and not (finished and finished.findings)
            ),
        )

    def _own_notices(self) -> tuple[str, ...]:
        """Return notices of the judgement itself."""
        if self._judged is None:
            return ()
        judged = self._judged
        kernel = judged.candidate.kernel
        told = [f"by its child's word: {text}" for text in kernel.strays]
        told += [
            f"by its child's word a call leaves {text} changed; it was put back"
            for text in kernel.left
        ]
        if judged.reference.form.neutral() and not judged.candidate.same_names:
            told.append(
                "weights that are all 0 or all 1 stay so: the candidate's are not the "
                "reference's by name and size"
            )
        return tuple(told)

    def _verdict(self, audit: Audit) -> tuple[Verdict, str]:
        if audit.faults or self._given_up:
            return Verdict.UNDER_SPECIFIED, (*audit.faults, self._given_up)[0]
        if self._broken:
            return Verdict.ERROR, self._broken
        finished, judged = self._finished, self._judged
        if finished is None or judged is None:
            return Verdict.ERROR, "the judgement did not come to its end"
        charged = [f for f in finished.findings if f.state in CHARGED]
        on_numbers = [f for f in charged if not judged.rests_on_nonfinite(f.case)]
        if charged:
            first = (on_numbers or charged)[0]
            told = f"{first.signature.contract}: {first.failure.message}"
            if not on_numbers:
                self._on_finite, why = self._without_charge(finished, judged)
                told += f"; {_told_of_numbers(self._on_finite, why)}"
            return Verdict.VIOLATES, told
        return self._without_charge(finished, judged)

    def _without_charge(
        self, finished: KernelFinished, judged: Judged
    ) -> tuple[Verdict, str]:
        """Return the verdict where nothing is reported, or nothing about numbers."""
        tallies, tried = finished.contracts.values(), judged.tried
        if any(t.verdict is Verdict.ERROR for t in tallies):
            told = ("could not be judged", "not judged on this backend")
            why = (n for n in self._notices if any(t in n for t in told))
            return Verdict.ERROR, next(why, "some case could not be judged")
        open_ = [f for f in finished.findings if f.state not in CHARGED]
        if open_:
            return Verdict.UNDER_SPECIFIED, (
                f"{open_[0].signature.contract} failed and was not confirmed: "
                f"{open_[0].state}"
            )
        if _was_cut_off(judged):
            return Verdict.UNDER_SPECIFIED, (
                "a call had not returned when the time was up: give more with "
                "--max-time"
            )
        if tried.raised_watched:
            return Verdict.UNDER_SPECIFIED, (
                "it raises where torch's operators are watched and returns where they "
                "are not, as torch.jit.trace does: its memory cannot be judged"
            )
        if not tried.passed:
            return Verdict.UNDER_SPECIFIED, (
                "no case on the file's own values could be decided"
            )
        if judged.candidate.stalls:
            return Verdict.UNDER_SPECIFIED, (
                "a call did not return in time, and did in a fresh process"
            )
        least = min(_LEAST_CASES, self._config.budget.max_cases or _LEAST_CASES)
        if tried.coverage.benchmarked < least:
            return Verdict.UNDER_SPECIFIED, (
                f"the time was enough for {tried.coverage.benchmarked} cases at the "
                "benchmarked shape: give more with --max-time"
            )
        if tried.refused_there > tried.taken_there:
            asked = tried.refused_there + tried.taken_there
            return Verdict.UNDER_SPECIFIED, (
                f"it raised on {tried.refused_there} of {asked} cases of finite values "
                "other than the file's own at the benchmarked shape, all of which the "
                "reference takes"
            )
        return Verdict.CONFORMS, "nothing found"


def _was_cut_off(judged: Judged | None) -> bool:
    """Whether a call had not returned before anything could be decided."""
    return bool(judged and judged.candidate.sandbox.cut_off and not judged.tried.passed)


def _told_of_numbers(verdict: Verdict, why: str) -> str:
    """Return what holds of a candidate that is wrong about NaN and infinities."""
    if verdict is Verdict.CONFORMS:
        return "conforms on finite inputs, breaks on NaN or infinities alone"
    return f"on finite inputs {verdict}: {why}"
