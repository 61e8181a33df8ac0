"""Coverage-guided search, the campaign's side: libFuzzer draws, the campaign judges.

A child runs libFuzzer over the bytes that cases are drawn from, and judges each case
in its own process, where the kernel's Python reports which branches run. What passes
there is counted; what fails is judged again by the ordinary runner, and findings come
from nowhere else. The campaign knows a case before the child runs it, so that one that
ends the child is judged like any other, and the search goes on.
"""

import importlib.util
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hypothesis.strategies import SearchStrategy

from kfuzz.core.budget import Scale
from kfuzz.core.errors import UsageError
from kfuzz.core.random_streams import Purpose
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.round import KernelSearch, Round, is_diagnosed
from kfuzz.engine.workers.children import Children, Served
from kfuzz.engine.workers.runner import SUSPECT_FACTOR, SUSPECT_SECONDS
from kfuzz.engine.workers.zygotes import OPEN_SECONDS
from kfuzz.evaluation.drawing import round_seed, search_round
from kfuzz.execution.processes.child import Child
from kfuzz.execution.processes.wire import ChildDied, ChildRaised, ChildTimeout
from kfuzz.features.coverage.child import FRESH_BYTES

# Not imported: what it serves with is for children alone.
EXPLORE: Final = "kfuzz.features.coverage.child:serve"
# Cases drawn afresh before anything is changed.
FRESH: Final = 24
# Drawing takes a millisecond; finding out that there are no more cases some seconds.
DRAW_SECONDS: Final = 120.0
# Ends of its process after which a search is given up: each costs a new start.
MOST_ENDS: Final = 12
# Cases in a row of no use here, after which there are no others.
MOST_USELESS: Final = 1000


class CoverageSearch:
    """The coverage-guided search of one kernel, over its rounds.

    Args:
        kernel: its search.
        fork: starts a child that serves `EXPLORE`.
        config: the run.
        expired: whether the run is over.
    """

    def __init__(
        self,
        kernel: KernelSearch,
        fork: Callable[[], Child],
        config: RunConfig,
        *,
        expired: Callable[[], bool],
    ) -> None:
        self._kernel = kernel
        self._seed = config.seed
        place = kernel.runner.place
        self._children = Children(kernel.loaded, place, fork, expired)
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._starts = 0
        self._ends = 0
        self._warm = False
        self._given_up = False

    def search(
        self,
        this_round: Round,
        strategy: SearchStrategy[Case],
        *,
        cases: int,
        seed_value: int,
    ) -> None:
        """Draw and judge the cases of a round; never raises.

        Args:
            this_round: takes what a case teaches.
            strategy: draws cases where libFuzzer cannot.
            cases: how many.
            seed_value: of the cases that libFuzzer does not draw.
        """
        record = self._kernel.record
        goal = record.cases + cases
        with this_round.guarded():
            while not this_round.over and record.cases < goal:
                if self._given_up:
                    left = goal - record.cases
                    search_round(
                        strategy, this_round.judge, cases=left, seed_value=seed_value
                    )
                    return
                case = self._draw()
                if case is None:
                    continue
                if not self._warm:
                    self._judge_first(this_round, case)
                    continue
                report = self._try()
                if report is None:
                    this_round.judge(case)
                else:
                    self._take(this_round, case, report)

    def _take(self, this_round: Round, case: Case, report: CaseReport) -> None:
        """Take what this child reports of a case; never raises.

        A failure whose symptom is due, and what this child could not judge, is judged
        anew: nothing is reported on its word.
        """
        if this_round.over:
            return
        failure, counts = report.failure, self._kernel.symptoms
        if failure is not None:
            symptom = failure.signature(self._kernel.name).symptom
            times = counts[symptom] + 1
            due = is_diagnosed(times)
            if due:
                this_round.judge(case)
            # Also where it is not shown there.
            counts[symptom] = max(times, counts[symptom])
            if due:
                return
        if report.error is not None or report.suspicion is not None:
            this_round.judge(case)
            return
        this_round.learn(case, report)

    def close(self) -> None:
        """End the child."""
        self._children.close()
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def _judge_first(self, this_round: Round, case: Case) -> None:
        """Judge a case by the runner first, and try it for its coverage if it passes.

        By what passes the runner knows how long a call takes, and so what hangs.
        """
        report = this_round.judge(case)
        if report is not None and report.failure is None and report.error is None:
            self._warm = True
            self._try()

    def _draw(self) -> Case | None:
        """Return the next case; None if its process ended, or there are no more."""
        useless = self._kernel.record.useless_dtypes
        try:
            peer = self._exploring()
            for _ in range(MOST_USELESS):
                peer.send({"do": "draw"})
                reply = peer.wait(DRAW_SECONDS)
                if reply["case"] is None:
                    break
                case: Case = reply["case"]
                if case.data.dtype not in useless:
                    return case
        except (ChildDied, ChildTimeout, ChildRaised) as fault:
            self._end(str(fault))
            return None
        self._given_up = True  # all cases have been judged: once more, then
        return None

    def _try(self) -> CaseReport | None:
        """Return the report of the case drawn last, None if it ended."""
        peer = self._children.standing()
        predicted = self._kernel.runner.predicted
        limit = max(SUSPECT_SECONDS, SUSPECT_FACTOR * predicted)
        try:
            peer.send({"do": "attempt"})
            reply = peer.wait(limit)
        except (ChildDied, ChildTimeout, ChildRaised) as fault:
            self._end(str(fault))
            return None
        if reply["spent"]:
            self._end("its device can be used no more")
        report: CaseReport = reply["report"]
        return report

    def _end(self, why: str) -> None:
        """Take note that the child is of no more use."""
        self.close()
        self._ends += 1
        if self._ends >= MOST_ENDS:
            self._given_up = True
            self._kernel.record.notice(
                f"coverage guides no more: its process ended {self._ends} times, at "
                f"last since {why}; cases are drawn without it"
            )

    def _exploring(self) -> Served:
        """Return the child, in which libFuzzer is under way."""
        if self._children.stands and self._scratch is not None:
            return self._children.standing()
        self.close()
        self._scratch = tempfile.TemporaryDirectory(prefix="kfuzz-inputs-")
        found, seeds = (Path(self._scratch.name) / name for name in ("found", "seeds"))
        found.mkdir()
        seeds.mkdir()
        name = self._kernel.name
        number = round_seed(self._seed, name, self._starts, Purpose.COVERAGE)
        self._starts += 1
        chance = random.Random(number)
        for index in range(FRESH):
            (seeds / f"{index:04}").write_bytes(chance.randbytes(FRESH_BYTES))
        peer = self._children.standing()
        folders = [str(found), str(seeds)]
        peer.send({"do": "explore", "folders": folders, "seed": number})
        peer.wait(OPEN_SECONDS)
        return peer


def require(config: RunConfig) -> None:
    """Check that libFuzzer can do what a run asks.

    Raises:
        UsageError: if it cannot.
    """
    if importlib.util.find_spec("atheris") is None:
        what = "atheris is not installed"
        fix = (
            "pip install atheris (there are wheels for CPython 3.11 to 3.14 on Linux, "
            "x86-64), or leave the engine out"
        )
    elif config.isolate == "none":
        what, fix = "libFuzzer needs a process of its own", "leave --isolate none out"
    elif config.scale is not Scale.USUAL:
        what = "too few cases are judged for coverage to guide anything"
        fix = f"leave it or --profile {config.scale} out"
    else:
        return
    raise UsageError(what, where="--engine atheris", fix=fix)
