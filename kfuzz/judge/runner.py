"""The campaign's side of a candidate: judged here, while its calls run in a child."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kfuzz.core.depth import Depth
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Failure, Signature
from kfuzz.engine.confirm.deaths import is_hang
from kfuzz.engine.workers.children import Place
from kfuzz.engine.workers.runner import Runner
from kfuzz.engine.workers.served import Stopped
from kfuzz.judge.judged import Judged
from kfuzz.targets.load import LoadedKernel


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

    def judge(self, case: Case, depth: Depth) -> CaseReport:
        """Run and judge one case.

        Raises:
            Stopped: once the run's time is over.
        """
        if self._over():
            raise Stopped
        report = self._judged.judge(case, depth)
        # It was established in two fresh children: see `RemoteKernel`.
        self._hung = self._hung or is_hang(report)
        if depth == Depth.SEARCH and not case.pinned:
            self._judged.count(case, report)
        return report

    def judge_each(
        self, cases: Sequence[Case], depth: Depth, until: Signature
    ) -> list[CaseReport]:
        """Judge cases in order, up to the first that shows a symptom."""
        reports: list[CaseReport] = []
        for case in cases:
            reports.append(self.judge(case, depth))
            if reports[-1].shows(until):
                break
        return reports

    def judge_fresh(self, case: Case, depths: Sequence[Depth]) -> list[CaseReport]:
        """Run and judge one case in fresh children, one after the other."""
        reports = []
        for depth in depths:
            if self._over():
                raise Stopped
            self._judged.fresh()
            reports.append(self._judged.judge(case, depth))
        return reports

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
