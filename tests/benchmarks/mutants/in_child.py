"""What is done with a mutant in a process that it may end."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts.binding import BoundKernel, Derived
from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.reading import worst_ratio
from kfuzz.core.recipe import Case
from kfuzz.evaluation.diagnosis import judge_explained
from kfuzz.evaluation.evaluator import Evaluator, Setting
from kfuzz.execution.device.backends import is_lost
from kfuzz.numerics.accumulation import same_bits
from kfuzz.targets.load import Source, load
from tests.benchmarks.mutants.small_cases import small_cases
from tests.benchmarks.peers.budgeted import Trial
from tests.benchmarks.peers.subject import Budget, Found, Subject
from tests.helpers.budgets import SIZE_BUDGETS

COMPARE: Final = "tests.benchmarks.mutants.in_child:compare"
STARTS: Final = "tests.benchmarks.mutants.in_child:starts"
# Bytes of an element at most.
_WIDEST: Final = 8

Message = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """A mutant and its correct kernel, to be compared on small cases.

    Attributes:
        kernel: name of the witness.
        mutant: file of the mutant.
        correct: file of the correct kernel.
        backend: where both run, "interpret" or "cuda".
        seconds: most of it.
        cases: most cases.
        tried: file of 8 bytes in which the number of the case tried is kept.
    """

    kernel: str
    mutant: str
    correct: str
    backend: str
    seconds: float
    cases: int
    tried: str


def starts(subject: Subject, budget: Budget, seed: int) -> Found:
    """Call a kernel once on an ordinary input; the message says what it raises.

    What does not compile, or raises whatever it is given, is no fault that anything has
    to search for. What the device reports, or ends the process, is one.
    """

    def compare(results: object, wanted: object) -> None:
        if subject.device.type == "cuda":
            torch.cuda.synchronize(subject.device)

    trial = Trial(subject, budget, compare)
    random = torch.Generator().manual_seed(seed)
    sizes = subject.friendly()
    tensors = list(subject.ordinary(sizes, subject.usual_dtype, random))
    trial.try_input(tensors, subject.dims(sizes)[-1])
    found = trial.found()
    raised = "" if is_lost(subject.device) else found.message
    return replace(found, found=False, message=raised)


def compare() -> Callable[[Message], Message]:
    """Return the handler of a fresh child that compares a mutant with its kernel."""
    return lambda message: compared(Comparison(**message))


def compared(asked: Comparison) -> Message:
    """Call both on small cases, and judge the mutant on each.

    Returns:
        "cases" compared, "differing" ones, "ratio", the greatest of those, "charged",
        what the mutant was charged with first, "" if with nothing, and "first", the
        first differing case in words.
    """
    torch.set_num_threads(1)
    device = torch.device("cuda:0" if asked.backend == "cuda" else "cpu")
    mutant, correct = (
        Evaluator(_loaded(Path(file), asked.kernel), _setting(device, asked.backend))
        for file in (asked.mutant, asked.correct)
    )
    tried = os.open(asked.tried, os.O_WRONLY | os.O_CREAT)
    end = time.monotonic() + asked.seconds
    made = {"cases": 0, "differing": 0, "ratio": 0.0, "charged": "", "first": ""}
    span = SIZE_BUDGETS[asked.backend].span // _WIDEST
    for case in small_cases(mutant.kernel, asked.cases, span):
        if time.monotonic() >= end:
            break
        os.pwrite(tried, int(made["cases"] + 1).to_bytes(8, "little"), 0)
        view, other = _view(mutant, case), _view(correct, case)
        if view is None or other is None:
            continue
        made["cases"] += 1
        _, _, failure = judge_explained(view, mutant.setting.classes)
        if failure is not None:
            charged = f"{failure.contract}: {failure.message}"
            return {**made, "charged": charged, "first": _words(case)}
        if not _alike(view, other):
            made["differing"] += 1
            made["ratio"] = max(made["ratio"], worst_ratio(view))
            made["first"] = made["first"] or _words(case)
    return made


def _loaded(file: Path, name: str) -> BoundKernel:
    return load(Source(file=file, only=(name,)), root=file.parent)[0].kernel


def _setting(device: torch.device, backend: str) -> Setting:
    return Setting(device, SIZE_BUDGETS[backend], frozenset(CLASSES))


def _view(bench: Evaluator, case: Case) -> Evidence | None:
    """Return what one call left; None where the backend cannot judge it."""
    whole = bench.settled(case)
    derived = Derived(whole, bench.values(whole))
    view, unsupported = bench.caller(whole).evidence(derived)
    return view if unsupported is None else None


def _alike(one: Evidence, two: Evidence) -> bool:
    """Whether two calls left the same."""
    a, b = one.base, two.base
    if a.raised is not None or b.raised is not None:
        return (a.raised and a.raised.type) == (b.raised and b.raised.type)
    return a.outputs.keys() == b.outputs.keys() and all(
        _equal(y, b.outputs[name]) for name, y in a.outputs.items()
    )


def _equal(one: Tensor, two: Tensor) -> bool:
    alike = (one.shape, one.dtype) == (two.shape, two.dtype)
    if not alike:
        return False
    if not one.is_floating_point():
        return bool(torch.equal(one, two))
    return bool(same_bits(one, two).all())


def _words(case: Case) -> str:
    tensors = (
        f"{name} {s.dtype}{list(s.shape)} {s.fill.family if s.fill else ''} "
        f"{s.strides or ''}".strip()
        for name, s in case.tensors.items()
    )
    return "; ".join([*tensors, *(f"{n}={v}" for n, v in case.scalars.items())])
