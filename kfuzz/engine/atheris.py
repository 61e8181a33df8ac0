"""Coverage-guided search, the campaign's side: libFuzzer draws, the campaign judges.

A child runs libFuzzer over the bytes that cases are drawn from, and judges each case
in its own process, where the kernel's Python tells which branches run. What passes
there is counted; what fails is judged anew by the ordinary runner, and findings come
from nowhere else. The campaign knows a case before the child runs it, so that one that
ends the child is judged like any other, and the search goes on with the inputs found.
"""

import contextlib
import hashlib
import importlib.util
import os
import random
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from hypothesis.strategies import SearchStrategy

from kfuzz.core.budget import Scale
from kfuzz.core.codec import decode
from kfuzz.core.errors import UsageError
from kfuzz.core.finding import safe_name, short_hash
from kfuzz.core.random_streams import Purpose
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport
from kfuzz.engine.atheris_child import FRESH_BYTES, MOST_BYTES
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.case_drawing import round_seed, search_round
from kfuzz.engine.search.round import KernelSearch, Round
from kfuzz.engine.workers.children import (
    SUSPECT_FACTOR,
    SUSPECT_SECONDS,
    Children,
    Served,
)
from kfuzz.engine.workers.zygotes import OPEN_SECONDS
from kfuzz.execution.processes import Child, ChildDied, ChildRaised, ChildTimeout

# The inputs that reached something, kept between runs and merged.
#
# They are the bytes that cases are drawn from: short, of no use to another version of
# Hypothesis or of the strategies than that they are drawn from all the same, and so no
# part of the corpus of findings. They lie beside it, in a folder that git ignores.
#
#     <corpus>/.inputs/<kernel>-<8 hex of its place and the backend>/<SHA-1 of the
#     bytes>

FOLDER: Final = ".inputs"
# Inputs kept of one kernel: more cost every run as many cases before the first new one.
MOST_KEPT: Final = 512


def inputs_in(*folders: Path) -> dict[str, bytes]:
    """Return the inputs in some folders by the name that libFuzzer gives them."""
    found = {}
    for folder in folders:
        with contextlib.suppress(OSError):
            for path in sorted(folder.iterdir()):
                with contextlib.suppress(OSError):
                    data = path.read_bytes()
                    found[hashlib.sha1(data, usedforsecurity=False).hexdigest()] = data
    return found


class KeptInputs:
    """The inputs of one kernel on one backend.

    Args:
        corpus: the folder of findings.
        kernel: the kernel's name.
        place: its node id.
        backend: "cpu", "interpret" or "cuda": sizes, and so cases, differ.
    """

    def __init__(self, corpus: Path, kernel: str, place: str, backend: str) -> None:
        name = f"{safe_name(kernel)}-{short_hash(f'{place} {backend}')}"
        self.folder = corpus / FOLDER / name

    def shortest(self, most: int | None) -> list[bytes]:
        """Return the inputs, the shortest first, at most so many of them."""
        kept = self._read()
        names = sorted(kept, key=lambda name: (len(kept[name]), name))
        return [kept[name] for name in names[:most]]

    def merge(self, ran: Mapping[str, bytes], worth: Collection[str]) -> None:
        """Keep of the inputs that were run those that reach what no other one does.

        Inputs that were not run stay.

        Args:
            ran: those that a run began with or came upon, by name.
            worth: names of those worth keeping.
        """
        kept = self._read()
        for name in kept.keys() & ran.keys() - {*worth}:
            with contextlib.suppress(OSError):
                (self.folder / name).unlink()
            del kept[name]
        fresh = {name: ran[name] for name in worth if name in ran and name not in kept}
        for name in sorted(fresh, key=lambda name: (len(fresh[name]), name)):
            if len(kept) < MOST_KEPT:
                kept[name] = fresh[name]
                self._write(name, fresh[name])

    def _read(self) -> dict[str, bytes]:
        found = inputs_in(self.folder)
        # A name that is not that of the bytes is a stranger's, or cut short.
        return {
            name: data
            for name, data in found.items()
            if len(data) <= MOST_BYTES and (self.folder / name).is_file()
        }

    def _write(self, name: str, data: bytes) -> None:
        # What cannot be kept, or is cut short, is found again.
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder.parent / ".gitignore").write_text("*\n")
            (self.folder / name).write_bytes(data)


# Not imported: what it serves with is for children alone.
EXPLORE: Final = "kfuzz.engine.atheris_child:serve"
# Cases drawn afresh before anything is changed.
FRESH: Final = 24
# At most one case in so many, where cases are counted, goes to inputs that were kept.
KEPT_SHARE: Final = 4
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
        limit, self._keeps = config.budget.max_cases, config.keep_inputs
        most = None if limit is None else limit // KEPT_SHARE
        self._most_kept = most if self._keeps else 0
        place = kernel.runner.place
        self._children = Children(kernel.loaded, place, fork, expired)
        self._kept = KeptInputs(
            config.corpus, kernel.name, kernel.node_id, place.backend
        )
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._seeding = True
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
                    this_round.take(case, report)

    def close(self) -> None:
        """End the child, and keep the inputs that reached something."""
        self._children.close()
        if self._scratch is None:
            return
        folder = Path(self._scratch.name)
        found = inputs_in(folder / "found")
        ran = found | inputs_in(folder / "seeds")
        worth = set()
        with contextlib.suppress(OSError):  # what cleans /tmp may have taken it
            worth |= set(os.listdir(folder / "features"))
        if self._seeding:  # others may stand for what has not been run yet
            worth |= set(found)
            ran = {name: data for name, data in ran.items() if name in worth}
        if self._keeps:
            self._kept.merge(ran, worth)
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
                self._seeding = bool(reply["seeding"])
                if reply["case"] is None:
                    break
                case = decode(Case, reply["case"], "case")
                if case.data.dtype not in useless:
                    return case
        except (ChildDied, ChildTimeout, ChildRaised) as fault:
            self._end(str(fault))
            return None
        self._given_up = True  # all cases have been judged: once more, then
        return None

    def _try(self) -> CaseReport | None:
        """Return what the child says of the case drawn last, None if it ended."""
        peer = self._children.standing()
        predicted = self._kernel.runner.predicted
        limit = max(SUSPECT_SECONDS, SUSPECT_FACTOR * predicted)
        try:
            peer.send({"do": "try"})
            reply = peer.wait(limit)
        except (ChildDied, ChildTimeout, ChildRaised) as fault:
            self._end(str(fault))
            return None
        if reply["spent"]:
            self._end("its device can be used no more")
        return decode(CaseReport, reply["report"], "report")

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
        folder = Path(self._scratch.name)
        for name in ("found", "seeds", "features"):
            (folder / name).mkdir()
        name = self._kernel.name
        number = round_seed(self._seed, name, self._starts, Purpose.COVERAGE)
        self._starts += 1
        chance = random.Random(number)
        seeds = [chance.randbytes(FRESH_BYTES) for _ in range(FRESH)]
        for index, data in enumerate((*seeds, *self._kept.shortest(self._most_kept))):
            (folder / "seeds" / f"{index:04}").write_bytes(data)
        self._seeding = True
        peer = self._children.standing()
        message: dict[str, Any] = {
            "do": "explore",
            "folders": [str(folder / "found"), str(folder / "seeds")],
            "features": str(folder / "features"),
            "seed": number,
        }
        peer.send(message)
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
