"""A warm process that judges one candidate after the other, for whoever forked it.

It keeps the zygote that candidates' children are forked from, and the last task that it
opened. Each candidate has a fresh contained child, a folder of its own, and no say in
what this process does: it gets bytes and returns bytes, as in `kfuzz judge`.
"""

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch

from kfuzz.core.budget import Budget
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import ATTRIBUTED, Verdict
from kfuzz.execution.device.backends import resolve
from kfuzz.execution.processes.child import Zygote
from kfuzz.execution.processes.wire import Message
from kfuzz.features.judge.candidate import Candidate
from kfuzz.features.judge.kernelbench.reference import (
    PosedProblem,
    Reference,
    open_problem,
)
from kfuzz.features.judge.outcome import Judgement
from kfuzz.features.judge.procedure import JudgeConfig, Judging, reuse_memory
from kfuzz.features.judge.sandbox.contain import Limits
from kfuzz.features.judge.sandbox.sandbox import Sandbox, zygote_for
from kfuzz.features.judge.service.judge import Ruling
from kfuzz.report.json_report import finding_summary

# The part of a GPU's memory that candidates may have, all of them together.
_CANDIDATES_SHARE: Final = 0.5


class Worker:
    """Answers `begin` once, then `open` and `judge` in turns."""

    def __init__(self) -> None:
        self._device = self._child_device = ""
        self._benchmarked_only = False
        self._home = self._private = Path()
        self._corpus: Path | None = None
        self._zygote: Zygote | None = None
        self._limits = Limits()
        # Where the next candidate is to be built: a child gets ready there meanwhile.
        self._ahead: Sandbox | None = None
        self._reference: Path | None = None
        self._problem: PosedProblem | None = None

    def __call__(self, message: Message) -> Message:
        """Answer one request.

        Raises:
            KfuzzError: if a task or its reference is not of the form.
        """
        answers: dict[str, Callable[..., Message]] = {
            "begin": self._begin, "open": self._open, "judge": self._judge
        }  # fmt: skip
        return answers[message.pop("do")](**message)

    def _begin(
        self,
        device: str,
        place: int,
        jobs: int,
        home: str,
        private: str,
        corpus: str,
        benchmarked_only: bool,
        limits: dict[str, Any],
    ) -> Message:
        """Get ready: a folder, a device, a zygote.

        Raises:
            BackendError: if the device is not there.
        """
        self._home, self._private = Path(home), Path(private)
        tempfile.tempdir = home  # what is left of a killed process goes with it
        backend, devices = resolve(device)
        self._device = devices[place % len(devices)] if backend.numbered else device
        name = backend.name if backend.has.on_host else self._device
        self._child_device = name
        shared = -(-jobs // len(devices)) if backend.numbered else jobs
        share = _CANDIDATES_SHARE / shared
        self._limits = replace(Limits(**limits), device_share=share)
        torch.set_num_threads(max(len(os.sched_getaffinity(0)) // jobs, 1))
        self._corpus = Path(corpus) if corpus else None
        self._benchmarked_only = benchmarked_only
        self._zygote = zygote_for(name, output=lambda piece: None)
        self._zygote.start()
        self._prepare()
        return {"device": self._device}

    def _prepare(self) -> None:
        """Have a child get ready for the next candidate, of which it knows nothing."""
        hidden = [self._private, *([self._corpus] if self._corpus else [])]
        self._ahead = Sandbox(
            None, device=self._child_device, limits=self._limits, zygote=self._zygote,
            hidden=hidden, lingers=True,
        )  # fmt: skip
        self._ahead.prepare(1)

    def _open(self, reference: str) -> Message:
        """Open and audit a reference, and keep it.

        Raises:
            UsageError: if it is not of the form.
        """
        self._forget()
        folder = Path(tempfile.mkdtemp(dir=self._private))
        # It is never written: where the system hides no file, there is none to read.
        self._reference = folder / "problem.py"
        backend, devices = resolve(self._device)
        reuse_memory()
        self._problem = open_problem(self._reference, devices[0], backend, reference)
        return {"faults": list(self._problem.audit.faults)}

    def _forget(self) -> None:
        if self._reference is not None:
            own = str(self._reference)
            for name, module in list(sys.modules.items()):
                if getattr(module, "__file__", None) == own:
                    del sys.modules[name]
            shutil.rmtree(self._reference.parent, ignore_errors=True)
        self._reference = self._problem = None

    def _judge(
        self,
        candidate: str,
        claims: dict[str, Any],
        max_time: float,
        max_cases: int | None,
        seed: int,
        explain: bool,
    ) -> Message:
        """Judge a candidate on the task that was opened last."""
        assert self._reference is not None
        assert self._problem is not None
        started = time.monotonic()
        folder = Path(tempfile.mkdtemp(dir=self._home))
        path = folder / "candidate.py"
        path.write_text(candidate, "utf-8", "backslashreplace")
        kept = self._corpus or self._reference.parent / "kept"
        judging = Judging(
            JudgeConfig(
                reference=self._reference, candidate=path, root=folder, corpus=kept,
                seed=seed, budget=Budget(max_time, max_cases, 1), device=self._device,
                claims=claims, started=started, explain=explain,
                benchmarked_only=self._benchmarked_only,
                limits=self._limits,
            ),
            opened=self._opened,
            problem=self._problem,
            hidden=[self._private],
        )  # fmt: skip
        try:
            for _ in judging.events(stop=threading.Event()):
                pass
            answer = _answer(judging.judgement(), keeps=self._corpus is not None)
            answer["reason"] = answer["reason"].replace(str(path), "the candidate")
            return answer
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            if self._corpus is None:
                shutil.rmtree(kept, ignore_errors=True)

    def _opened(
        self,
        path: Path,
        reference: Reference,
        *,
        backend: str,
        limits: Limits,
        hidden: Sequence[Path] = (),
    ) -> Candidate:
        """Start a candidate in the sandbox that is there, which hides all tasks."""
        assert self._ahead is not None
        try:
            return Candidate(
                path, reference, backend=backend, limits=limits, sandbox=self._ahead
            )
        finally:
            self._prepare()


def _answer(made: Judgement, *, keeps: bool) -> Message:
    """Return a judgement as the campaign's side of this process reads it."""
    attributed = [f for f in made.findings if f.state in ATTRIBUTED]
    ruling = Ruling(str(made.verdict))
    if made.cut_off:
        ruling = Ruling.TIME_OUT
    elif ruling is Ruling.VIOLATES and made.on_finite is Verdict.CONFORMS:
        ruling = Ruling.CONFORMS_ON_FINITE
    found = None
    if attributed and made.verdict is Verdict.VIOLATES:
        told = (
            f
            for f in attributed
            if made.reason.startswith(f"{f.signature.contract}: {f.failure.message}")
        )
        found = _in_short(next(told, attributed[0]), made.paths if keeps else {})
    return {
        "verdict": str(ruling),
        "reason": made.reason,
        "cases": made.coverage.cases,
        "seed": made.seed,
        "finding": found,
        # What is kfuzz's fault, or the machine's, says nothing of a candidate.
        "of_candidate": made.verdict is not Verdict.ERROR or not made.is_built,
    }


def _in_short(finding: Finding, paths: dict[str, str]) -> dict[str, Any]:
    """Return a finding as plain data, see `Score`."""
    failure = finding.failure
    summary = finding_summary(finding, paths.get(finding.id, ""))
    wanted = ("contract", "kind", "state", "message", "line")
    short: dict[str, Any] = {name: summary[name] for name in wanted}
    short["inputs"] = {
        name: f"{spec.dtype}[{', '.join(map(str, spec.shape))}]"
        for name, spec in finding.case.tensors.items()
    }
    short["got"], short["expected"] = _plain(failure.got), _plain(failure.expected)
    if finding.explanation is not None and finding.explanation.lines:
        short["explanation"] = list(finding.explanation.lines)
    if summary["path"]:
        short["path"] = paths[finding.id]
    return short


def _plain(value: float | None) -> float | str | None:
    """Return a number as strict JSON has it: what is not finite as a text."""
    if value is None or abs(value) < float("inf"):
        return value
    return str(value)
