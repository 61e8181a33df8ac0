"""`kfuzz.Judge`: verdicts and rewards from warm processes, several at once."""

import asyncio
import math
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from kfuzz.cli.settings import drawn_seed
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import (
    BackendError,
    BindingError,
    HarnessError,
    KfuzzError,
    UsageError,
    suggestion,
)
from kfuzz.execution.processes import wire
from kfuzz.execution.processes.child import Child, Zygote
from kfuzz.features.judge.candidate import BUILT
from kfuzz.features.judge.sandbox.contain import Limits
from kfuzz.store.files import read_source

# What follows from the arguments that a reference gives, and from how it is called.
_OF_THE_FORM: Final = frozenset(
    {"dtypes", "layouts", "alignment", "shape_class", "inplace", "out"}
)
# Before these no other statement may stand.
_FUTURE: Final = re.compile(r"^from __future__ import (\([^)]*\)|.*)$", re.MULTILINE)
_MODULE: Final = """

if {built!r} not in globals():
    import torch as _torch

    class {built}(_torch.nn.Module):
        def forward(self, *arguments):
            return {entry}({given})
"""


@dataclass(frozen=True)
class Task:
    """What candidates are judged on.

    Attributes:
        reference: the text of a reference in KernelBench's form; trusted, it is run.
        entry: what a candidate's file defines: a class `ModelNew`, or a function of
            this name that takes the tensors.
        claims: what candidates declare, as `kfuzz.kernel` takes it.
        packed: whether that function takes several tensors as one tuple.
        given: what runs before a candidate's text: the modules that it may import.
    """

    reference: str
    entry: str = BUILT
    claims: Mapping[str, Any] = field(default_factory=dict)
    packed: bool = False
    given: str = ""

    def __post_init__(self) -> None:
        """Check what is declared, and the name.

        Raises:
            BindingError: if a declaration is unknown or impossible.
            UsageError: if the entry is no name, or what is declared follows from the
                reference.
        """
        if given := sorted(_OF_THE_FORM & self.claims.keys()):
            raise UsageError(
                f"{given[0]} is not declared of candidates", where="the task",
                fix="get_inputs() of the reference says what they are given",
            )  # fmt: skip
        Declaration().declare("the task", **self.claims)
        if not all(part.isidentifier() for part in self.entry.split(".")):
            raise UsageError(f"entry {self.entry!r} is no Python name")

    def candidate(self, source: str) -> str:
        """Return the text of a candidate in KernelBench's form."""
        if self.given:
            first = list(_FUTURE.finditer(source))
            at = first[-1].end() if first else 0
            source = f"{source[:at]}\n{self.given}\n{source[at:]}"
        if self.entry == BUILT:
            return source
        one = "arguments[0] if len(arguments) == 1 else arguments"
        given = one if self.packed else "*arguments"
        return source + _MODULE.format(built=BUILT, entry=self.entry, given=given)


def _reference_of(problem: str | Path) -> str:
    """Return the text of a reference; arguments and exceptions as of `Judge.task`."""
    text = str(problem)
    if isinstance(problem, str) and "\n" in text:
        return text
    if not os.path.isfile(text):
        raise UsageError("no such file", where=text[:80], fix="check the path")
    return read_source(Path(text))


# What a judgement comes to for who asked: one word, a reward, a finding in short.


class Ruling(StrEnum):
    """The verdict on a candidate; README.md says what follows from each."""

    CONFORMS = "conforms"
    CONFORMS_ON_FINITE = "conforms_on_finite"
    VIOLATES = "violates"
    UNDER_SPECIFIED = "under_specified"
    ERROR = "error"
    TIME_OUT = "time_out"


REWARDS: Final[Mapping[Ruling, float | None]] = MappingProxyType(
    {
        Ruling.CONFORMS: 1.0,
        Ruling.CONFORMS_ON_FINITE: 0.5,
        Ruling.VIOLATES: 0.0,
        Ruling.UNDER_SPECIFIED: None,
        Ruling.ERROR: 0.0,
        Ruling.TIME_OUT: 0.0,
    }
)
"""The rewards unless others are asked for; None: the sample is to be dropped."""


@dataclass(frozen=True)
class Score:
    """The verdict on one candidate.

    Attributes:
        verdict: in one word.
        reward: what it is worth; None where the sample says nothing about the
            candidate and is to be dropped.
        reason: one line.
        seconds: how long the judgement took, waiting for a free process aside.
        cases: cases that were judged.
        seed: everything drawn depends on it.
        finding: what it violates, as plain data: "contract", "kind", "state",
            "message", "inputs" (a text for each argument), "got", "expected", and
            "explanation", lines, where one was asked for, and "line" then, where one
            is known: "file", "line", "certain", "evidence"; "path" where it is kept.
            None where nothing is reported.
    """

    verdict: Ruling
    reward: float | None
    reason: str
    seconds: float = 0.0
    cases: int = 0
    seed: int = 0
    finding: Mapping[str, Any] | None = None

    @property
    def document(self) -> dict[str, Any]:
        """It as plain values, for JSON."""
        return asdict(self) | {"verdict": str(self.verdict)}


_WORKER: Final = "kfuzz.features.judge.service.worker"
_PRELOAD: Final = ("torch", "triton", "hypothesis", _WORKER)
# For a process to begin, and to find its device.
_READY_SECONDS: Final = 180.0
GRACE_SECONDS: Final = 15.0
"""How much later than its time a judgement ends at most, by itself: a call is given up,
processes are killed. Then the process that judges is killed."""
# Exceptions of a worker that are the caller's to see.
_TOLD: Final[dict[str, type[KfuzzError]]] = {
    e.__name__: e for e in (UsageError, BindingError, BackendError)
}


class Judge(wire.Closing):
    """Judges candidates, which it never imports, against a reference.

        with kfuzz.Judge("problem.py", max_time=10, jobs=4) as judge:
            score = judge.judge(source)  # or: await judge.judge_async(source)
            score.verdict, score.reward, score.reason

    A context manager, for any number of threads. Its processes are forked from one that
    has imported torch and triton, and stay; each candidate has a fresh contained child.

    Args:
        problem: a reference in KernelBench's form, as a file or text; or a `Task`. None
            where each candidate comes with its own.
        entry: what a candidate's file defines: a class `ModelNew`, or a function of
            this name that takes the tensors.
        max_time: seconds of a judgement, once the candidate is built. A violation ends
            it at once.
        build_time: seconds that opening a reference may take, and building a candidate.
        max_cases: most cases of a judgement; None for as many as there is time for.
        jobs: judgements at once, each in a process of its own.
        device: "auto", "cpu", "cuda", "cuda:i" or "interpret"; processes are spread
            over the GPUs.
        rewards: by verdict, in place of those of `REWARDS`; None drops a sample.
        corpus: folder of findings; by default none are kept.
        benchmarked_only: whether no shape but the reference's own is tried.
        claims: what candidates declare, as `kfuzz.kernel` takes it:
            `nonfinite="undefined"`, `accumulator="tf32"`.

    Raises:
        UsageError: if there is no such problem, a number is not positive, or a reward
            is of no verdict.
        BindingError: if a declaration is unknown or impossible.
    """

    def __init__(
        self,
        problem: str | Path | Task | None = None,
        *,
        entry: str = BUILT,
        max_time: float = 10.0,
        build_time: float = 120.0,
        max_cases: int | None = None,
        jobs: int = 1,
        device: str = "auto",
        rewards: Mapping[str, float | None] | None = None,
        corpus: str | Path | None = None,
        benchmarked_only: bool = False,
        **claims: Any,
    ) -> None:
        _require_positive(
            max_time=max_time, build_time=build_time, jobs=jobs,
            max_cases=1 if max_cases is None else max_cases,
        )  # fmt: skip
        for name in rewards or {}:
            if name not in set(Ruling):
                fix = suggestion(name, map(str, Ruling))
                raise UsageError(f"no verdict {name!r}", where="rewards", fix=fix)
        # Checks what is declared, with a problem or without.
        self._usual = Task("", entry, claims)
        self._task = None if problem is None else self.task(problem)
        self._rewards = {**REWARDS}
        self._rewards |= {Ruling(n): r for n, r in (rewards or {}).items()}
        self._max_time, self._build_time = float(max_time), float(build_time)
        self._max_cases = max_cases
        # Candidates, and what they are judged on, which is hidden from all of them.
        self._home, self._private = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
        # Any output of theirs is a stranger's, or is told in an error.
        self._zygote = Zygote(
            f"{_WORKER}:Worker", env=os.environ, preload=_PRELOAD,
            output=lambda piece: None,
        )  # fmt: skip
        limits = Limits()
        limits = replace(
            limits,
            wall_seconds=min(limits.wall_seconds, max(self._max_time, 2.0)),
            first_seconds=min(limits.first_seconds, self._build_time),
            open_seconds=self._build_time,
        )
        begin = {
            "do": "begin", "device": device, "jobs": int(jobs),
            "corpus": str(Path(corpus).resolve()) if corpus is not None else "",
            "limits": asdict(limits),
            "benchmarked_only": benchmarked_only, "private": str(self._private),
        }  # fmt: skip
        self._workers = [
            _Process(self._zygote, self._home / str(i), {**begin, "place": i})
            for i in range(int(jobs))
        ]
        self._free = list(self._workers)
        self._changed = threading.Condition()
        self._closed = False
        self._threads = ThreadPoolExecutor(int(jobs), "judge")
        for worker in self._workers:
            self._threads.submit(worker.warm)

    @property
    def jobs(self) -> int:
        """Judgements that it makes at once."""
        return len(self._workers)

    @property
    def has_task(self) -> bool:
        """Whether candidates may come without a task of their own."""
        return self._task is not None

    def task(
        self, problem: str | Path | Task, *, entry: str = "", **claims: Any
    ) -> Task:
        """Return a problem as a task; a `Task` stays as it is.

        Args:
            problem: as the judge takes it.
            entry: likewise; the judge's own by default.
            claims: besides those of the judge.

        Raises:
            UsageError: if there is no such file.
            BindingError: if a declaration is unknown or impossible.
            DecodeError: if the file cannot be read.
        """
        if isinstance(problem, Task):
            return problem
        usual, text = self._usual, _reference_of(problem)
        return Task(text, entry or usual.entry, {**usual.claims, **claims})

    def judge(
        self,
        candidate: str | Path,
        *,
        task: Task | None = None,
        explain: bool = False,
        seed: int | None = None,
    ) -> Score:
        """Judge one candidate; waits for a free process.

        Args:
            candidate: its text, or its file as a `Path`.
            task: in place of the judge's own.
            explain: whether a finding is reduced and explained, which takes longer.
            seed: everything drawn depends on it; a fresh one by default.

        Raises:
            UsageError: if the reference is not of the form, there is no task, or the
                judge is closed.
            BackendError: if the device is not there.
        """
        task = task or self._task
        if task is None:
            raise UsageError("there is no task", fix="give one: task=judge.task(…)")
        if isinstance(candidate, Path):
            candidate = read_source(candidate)
        seed = drawn_seed(seed)
        asked = {
            "do": "judge", "candidate": task.candidate(candidate),
            "claims": dict(task.claims),
            "max_time": self._max_time, "max_cases": self._max_cases,
            "seed": seed, "explain": explain,
        }  # fmt: skip
        worker = self._take(task.reference)
        began = time.monotonic()
        try:
            worker.open(task.reference, self._build_time + GRACE_SECONDS)
            most = self._build_time + 2 * self._max_time + GRACE_SECONDS
            told = worker.ask(asked, most)
        except wire.ChildTimeout as late:
            opening = worker.opened != task.reference
            what = "opening the reference" if opening else "the judgement"
            told = {
                "verdict": Ruling.UNDER_SPECIFIED if opening else Ruling.TIME_OUT,
                "reason": f"{what} was given up after {late.seconds:.0f} s",
            }
            worker.end()
        except wire.ChildRaised as raised:
            if raised.type in _TOLD:
                raise _TOLD[raised.type](raised.message) from None
            told = _failed(f"{raised.type}: {raised.message}")
            worker.end()
        except (wire.ChildFault, HarnessError) as fault:
            told = _failed(str(fault))
            worker.end()
        finally:
            self._give(worker)
        ruling = Ruling(told["verdict"])
        return Score(
            ruling,
            self._rewards[ruling] if told.get("of_candidate", True) else None,
            told["reason"],
            round(time.monotonic() - began, 3),
            told.get("cases", 0),
            seed,
            told.get("finding"),
        )

    async def judge_async(
        self,
        candidate: str | Path,
        *,
        task: Task | None = None,
        explain: bool = False,
        seed: int | None = None,
    ) -> Score:
        """Judge one candidate without blocking the event loop; see `judge`.

        One that is cancelled goes on to its end.
        """
        asked = partial(self.judge, candidate, task=task, explain=explain, seed=seed)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, asked)

    def close(self) -> None:
        """End every process, judgements under way included, and remove its folders."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._zygote.close()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.end()
        for folder in (self._home, self._private):
            shutil.rmtree(folder, ignore_errors=True)

    def _take(self, reference: str) -> "_Process":
        """Return a process that is free, one that has opened the reference if any has.

        Raises:
            UsageError: if the judge is closed.
        """
        with self._changed:
            while not self._free and not self._closed:
                self._changed.wait()
            if self._closed:
                raise UsageError("the judge is closed")
            open_there = [w for w in self._free if w.opened == reference]
            worker = (open_there or self._free)[0]
            self._free.remove(worker)
            return worker

    def _give(self, worker: "_Process") -> None:
        with self._changed:
            self._free.append(worker)
            self._changed.notify()


class _Process:
    """One warm process, begun anew where it has ended.

    Attributes:
        opened: the reference that it has opened last.
    """

    def __init__(self, zygote: Zygote, home: Path, begin: dict[str, Any]) -> None:
        self.opened: str | None = None
        self._zygote, self._home = zygote, home
        self._begin = {**begin, "home": str(home)}
        self._child: Child | None = None
        self._lock = threading.RLock()

    def warm(self) -> None:
        """Begin it, if it is not there; what fails is told to who asks."""
        with suppress(KfuzzError), self._lock:
            self._there()

    def open(self, reference: str, seconds: float) -> None:
        """Have it open a reference, unless it is open; raises as `ask` does."""
        if self.opened != reference:
            self.opened = None
            self.ask({"do": "open", "reference": reference}, seconds)
            self.opened = reference

    def ask(self, message: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Return the answer to a request.

        Raises:
            ChildTimeout, ChildDied, ChildRaised: as `Child.wait`.
            HarnessError: no process can be had.
        """
        with self._lock:
            return self._there().request(message, seconds)

    def end(self) -> None:
        """End it, with all that it has begun."""
        with self._lock:
            if self._child is not None:
                with suppress(HarnessError):
                    self._child.kill()
            self._child = self.opened = None
            shutil.rmtree(self._home, ignore_errors=True)

    def _there(self) -> Child:
        if self._child is None:
            self._home.mkdir(parents=True, exist_ok=True)
            child = self._zygote.fork()
            try:
                child.request(self._begin, _READY_SECONDS)
            except BaseException:
                with suppress(HarnessError):
                    child.kill()
                raise
            self._child = child
        return self._child


def _failed(what: str) -> dict[str, Any]:
    reason = f"kfuzz or the machine failed: {what}"
    return {"verdict": Ruling.ERROR, "reason": reason, "of_candidate": False}


def _require_positive(**numbers: float) -> None:
    for name, value in numbers.items():
        known = isinstance(value, int | float) and not isinstance(value, bool)
        if not (known and 0 < value < math.inf):
            raise UsageError(f"{name}={value!r} is not a positive number")
