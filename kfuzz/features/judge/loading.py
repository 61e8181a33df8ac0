"""A candidate and its reference, loaded to be judged or replayed like any kernel.

Its cases are judged in the campaign's process, while its calls run in a child.
"""

import hashlib
import math
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.core.budget import Depth, SizeBudget
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import KfuzzError, UsageError
from kfuzz.core.finding import Finding, Target
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Failure
from kfuzz.engine.config import ReplayConfig
from kfuzz.engine.workers.children import Place
from kfuzz.engine.workers.jobs import Stopped
from kfuzz.engine.workers.runner import Runner, is_hang
from kfuzz.execution.device.backends import BACKENDS, resolve
from kfuzz.features.judge.candidate import Candidate
from kfuzz.features.judge.case_judging import SHAPES, Judged
from kfuzz.features.judge.kernelbench.audit import open_problem
from kfuzz.features.judge.kernelbench.operator import Reference
from kfuzz.features.judge.sandbox.contain import Limits
from kfuzz.targets.load import LoadedKernel, Source

# Elements of arguments and weights up to which several children are built at once.
_SIDE_BY_SIDE: Final = 1 << 26


class JudgedRunner(Runner):
    """Runs cases of one candidate; its children are the candidate's own affair."""

    def __init__(
        self, loaded: "JudgedKernel", place: Place, *, expired: Callable[[], bool]
    ) -> None:
        super().__init__(loaded, place, None, expired=expired)
        self._judged = loaded.judged
        self._over = expired
        # Whether it hangs: then no further run is made for a smaller case.
        self._hung = False

    @property
    def tells_apart(self) -> bool:
        """Whether to find out by further calls which class a violation breaks."""
        return self._judged.tells_apart

    @property
    def records_count(self) -> bool:
        """Always: what came back was judged in this process, from bytes."""
        return True

    def seen_often(self, failure: Failure) -> bool:
        """Whether calls in a row have ended so more than once."""
        return self._judged.ends_often(failure.kind)

    def open(self) -> None:
        """Do nothing: a candidate's child is started when it is asked for."""

    def judge(
        self, case: Case, depth: Depth, *, patience: float = math.inf
    ) -> CaseReport:
        """Run and judge one case; what is compiled for it gets all the time it takes.

        Raises:
            Stopped: once the run's time is over.
        """
        if self._over():
            raise Stopped
        report = self.judge_again(case, depth)
        # It was established in two fresh children: see `RemoteKernel`.
        self._hung = self._hung or is_hang(report)
        if depth == Depth.SEARCH and not case.pinned:
            reference = self._judged.reference
            self._judged.tried.take(
                case, report, benchmarked=reference.is_benchmarked(case),
                own=reference.is_own(case),
            )  # fmt: skip
        return report

    def judge_again(self, case: Case, depth: Depth) -> CaseReport:
        """Run and judge one case that is none of the search's.

        Raises:
            Stopped: once the run's time is over.
        """
        report = self._judged.judge(case, depth)
        if report.error is not None and self._over():
            raise Stopped  # a call was cut off, and nothing is known of it
        return report

    def judge_fresh(self, case: Case, depths: Sequence[Depth]) -> list[CaseReport]:
        """Run and judge one case in fresh children, one after the other.

        They get ready side by side where memory is enough for a few of them.
        """
        weights = self._judged.reference.form.state().values()
        if case.elements + sum(x.numel() for x in weights) <= _SIDE_BY_SIDE:
            self._judged.candidate.sandbox.prepare(len(depths))
        reports: list[CaseReport] = []
        for depth in depths:
            if self._over():
                raise Stopped
            self._judged.candidate.sandbox.fresh()
            reports.append(self.judge_again(case, depth))
        return reports

    def diagnose(self, case: Case, seconds: float, *, fresh: bool) -> CaseReport | None:
        """Judge a case that fails with the probes that tell the classes apart."""
        if not fresh:
            return self.judge(case, Depth.FULL)
        [report] = self.judge_fresh(case, [Depth.FULL])
        return report

    def prepare(self, children: int) -> None:
        """Do nothing: a fresh child of a candidate is started when it is asked for."""

    def locate(self, case: Case) -> tuple[Case, Failure] | None:
        """Return None: there are no fences in a candidate's child."""
        return None

    def admits(self, case: Case) -> bool:
        """Whether a smaller form of a case is one that the reference's file allows."""
        return super().admits(case) and self._judged.admits(case)

    def pin(self, case: Case) -> Case:
        """Return the case with its values explicit, unless there are too many."""
        return case if self._hung else self._judged.pin(case)

    def close(self) -> None:
        """End the candidate's child."""
        self._judged.candidate.close()


@dataclass(frozen=True)
class JudgedKernel(LoadedKernel):
    """A candidate that is loaded like a kernel, and runs in its child.

    Attributes:
        judged: it, held against its reference.
    """

    judged: Judged = field(kw_only=True)

    def runner(self, place: Place, *, expired: Callable[[], bool]) -> JudgedRunner:
        """Return what runs its cases."""
        return JudgedRunner(self, place, expired=expired)


def judged_again(
    finding: Finding, config: ReplayConfig, opened: Callable[..., Candidate] = Candidate
) -> JudgedKernel:
    """Return the candidate of a finding, in a child, to be replayed.

    Raises:
        KfuzzError: if a file is gone, the problem decides nothing any more, or the
            candidate cannot be built.
    """
    target = finding.target
    backend, devices = resolve(config.device or finding.device)
    reference, candidate = _files(finding, config)
    problem = open_problem(reference, devices[0])
    if problem.audit.faults or problem.reference is None:
        raise KfuzzError(
            f"the reference decides nothing: {problem.audit.faults[0]}",
            where=target.reference,
        )
    made = loaded_candidate(
        problem.reference, candidate, problem.reference.form.path, finding.declaration,
        name=finding.signature.kernel, root=config.root, backend=backend.name,
        limits=Limits(), opened=opened, corpus=config.corpus,
    )  # fmt: skip
    # Only then it was right at the benchmarked shape when it was found.
    made.judged.tried.passed = finding.signature.contract == SHAPES
    return made


def _files(finding: Finding, config: ReplayConfig) -> tuple[Path, Path]:
    """Return where reference and candidate of a finding lie.

    Raises:
        UsageError: if one is not there, or is not the one that was judged.
    """
    reference, candidate = finding.target.reference, finding.target.file
    if config.target:
        reference, colons, candidate = config.target.partition("::")
        if not (colons and reference and candidate):
            raise UsageError(
                "the finding is a candidate's", where=config.target,
                fix="give --target REFERENCE.py::CANDIDATE.py",
            )  # fmt: skip
    base = Path() if config.target else config.root
    fix = "name both: --target REFERENCE.py::CANDIDATE.py"
    for path in (base / reference, base / candidate):
        if not os.path.isfile(path):
            raise UsageError("no such file", where=str(path), fix=fix)
    files = (base / reference).resolve(), (base / candidate).resolve()
    there = candidate_name(*files, config.root).rpartition("_")[2]
    if not config.target and there != finding.target.name.rpartition("_")[2]:
        # Of a path outside the project its last part is stored: this is another file.
        where = finding.target.node_id
        raise UsageError("what was judged lay elsewhere", where=where, fix=fix)
    return files


def candidate_name(reference: Path, candidate: Path, root: Path) -> str:
    """Return a candidate's name in findings, which ends with a hash of both paths.

    Files of one name in two folders, or against two references, are not the same
    candidate: what is stored of one says nothing of the other.
    """
    told = []
    for path in (reference, candidate):
        full = path.resolve()
        inside = full.is_relative_to(root)
        told.append((full.relative_to(root) if inside else full).as_posix())
    digest = hashlib.sha256(
        "::".join(told).encode(errors="surrogateescape")
    ).hexdigest()
    return f"{candidate.stem}_{digest[:6]}"


def loaded_candidate(
    reference: Reference,
    candidate: Path,
    shown_reference: Path,
    claims: Declaration,
    *,
    name: str,
    root: Path,
    backend: str,
    limits: Limits,
    corpus: Path,
    opened: Callable[..., Candidate] = Candidate,
    tells_apart: bool = True,
) -> JudgedKernel:
    """Return a candidate in its child, held against a reference.

    Args:
        reference: the reference.
        candidate: the candidate's file.
        shown_reference: the reference's file.
        claims: what the candidate is held to.
        name: the candidate's in findings.
        root: the project.
        backend: name of the backend.
        limits: what its child may take.
        corpus: where findings lie, which the candidate must not read.
        opened: starts it.
        tells_apart: as of `Setting`.

    Raises:
        KfuzzError: if it cannot be started.
    """
    budget = budget_of(reference, backend)
    inside = candidate.resolve().is_relative_to(corpus.resolve())
    judged = Judged(
        reference,
        opened(
            candidate.resolve(), reference, backend=backend, limits=limits,
            hidden=[] if inside else [corpus],
        ),
        name=name, budget=budget, classes=judged_classes(), claims=claims,
        tells_apart=tells_apart,
    )  # fmt: skip
    target = Target(
        file=_within(candidate, root), name=name,
        reference=_within(shown_reference, root),
    )  # fmt: skip
    return JudgedKernel(judged.kernel, target, Source(), judged=judged)


def judged_classes() -> Collection[str]:
    """Return the ids of the contract classes that candidates are held to."""
    return frozenset(c.id for c in ATTRIBUTION if c.of_candidates)


def budget_of(reference: Reference, backend: str) -> SizeBudget:
    """Return the limits on cases, large enough for the least that the reference takes.

    Those of a search elsewhere are small: most faults of shape show there.
    """
    limits, least = BACKENDS[backend].limits, reference.least_elements
    elements = max(limits.judged_elements, least)
    rows = max(limits.sizes.rows, least)
    return replace(limits.sizes, elements=elements, rows=rows, span=0)


def _within(path: Path, root: Path) -> str:
    """Return a path as findings name it: relative to the project, or its last part."""
    full = path.resolve()
    inside = full.is_relative_to(root)
    return full.relative_to(root).as_posix() if inside else full.name
