"""One judged case for each data type and layout of a kernel, and what they decide."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from kfuzz.contracts.binding import BoundKernel, ordinary_cases
from kfuzz.contracts.classes import ATTRIBUTION, CLASSES
from kfuzz.core.budget import Depth
from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Verdict
from kfuzz.engine.search.record import Record
from kfuzz.engine.search.round import KernelSearch
from kfuzz.engine.search.schedule import Bindings, small_cases
from kfuzz.engine.workers.jobs import Stopped
from kfuzz.engine.workers.runner import runner_of
from kfuzz.engine.workers.zygotes import Backend, budget_for
from kfuzz.evaluation.bindings import in_dtype, is_brought
from kfuzz.evaluation.calling import defined
from kfuzz.strategies.layouts import build, layout_options
from kfuzz.targets.load import LoadedKernel, load_all

SECONDS: Final = 5.0


_CONTIGUOUS: Final = "contiguous"


_ENOUGH: Final = 64


# What differs between the layouts of a kind.
_SEED: Final = 1


class Answer(StrEnum):
    """What became of one case."""

    OK = "ok"
    VIOLATES = "violates"
    REJECTED = "rejected"
    UNDECIDED = "undecided"
    UNSUPPORTED = "not judged here"
    ERROR = "error"


@dataclass(frozen=True)
class JudgedCase:
    """One case, and what came of it.

    Attributes:
        dtype: its data type.
        layout: of its tensors, as far as they can have it.
        answer: what became of it.
        message: why, one line; "" where it is ok.
    """

    dtype: str
    layout: str
    answer: Answer
    message: str = ""


@dataclass(frozen=True)
class CheckedKernel:
    """The result of a check of one kernel.

    Attributes:
        kernel: node id.
        signature: of its operator.
        oracle: where the oracle stands that a user brought; "" for kfuzz's own.
        cases: that were judged.
        left_out: cases for which there was no time.
        decided: contract classes that a case decided.
        open: those that bind the kernel and that a search has to decide.
        inapplicable: those that do not, each with the kernels that it binds.
        uncompared: why no value was compared; "" where one was.
        needs_gpu: whether that is for want of a GPU.
    """

    kernel: str
    signature: str
    oracle: str
    cases: tuple[JudgedCase, ...]
    left_out: int
    decided: tuple[str, ...]
    open: tuple[str, ...]
    inapplicable: dict[str, str]
    uncompared: str
    needs_gpu: bool

    def has(self, answer: Answer) -> bool:
        """Whether a case had an answer."""
        return any(case.answer is answer for case in self.cases)


def check_all(
    targets: Sequence[str],
    *,
    root: Path,
    device: str,
    stop: threading.Event,
    failed: list[BindingError] | None = None,
) -> Iterator[CheckedKernel]:
    """Yield the result of a check of each kernel.

    Args:
        targets: as on the command line.
        root: the project.
        device: "auto", "cpu", "cuda", "cuda:i" or "interpret".
        stop: ends it.
        failed: takes what is wrong with one file of several.

    Raises:
        KfuzzError: on targets that cannot be obeyed, and on what a user brought if it
            can judge no case.
    """
    loaded = load_all(tuple(targets), root=root, failed=failed)
    backend = Backend(device)
    try:
        kernels = [_prepared(each, backend, root, stop) for each in loaded]
        bindings = Bindings(kernels, on_host=not backend.on.has.asynchronous)
        for kernel in kernels:
            try:
                bindings.compare(kernel)
                yield _checked(kernel)
            except Stopped:
                return
            finally:
                kernel.runner.close()
    finally:
        backend.close()


def _prepared(
    loaded: LoadedKernel, backend: Backend, root: Path, stop: threading.Event
) -> KernelSearch:
    operator, claims = loaded.kernel.operator, loaded.kernel.declaration
    binding = {c.id for c in ATTRIBUTION if c.binds(operator, claims)}
    budget = budget_for(loaded.kernel, backend.name)
    runner = runner_of(loaded, backend, root=root, expired=stop.is_set, budget=budget)
    record = Record(frozenset(binding), claims.dtypes)
    return KernelSearch(loaded, runner, budget, record)


def _checked(search: KernelSearch) -> CheckedKernel:
    kernel, record = search.loaded.kernel, search.record
    operator = kernel.operator
    made, left_out = [], 0
    end = time.monotonic() + SECONDS
    for dtype, layout, case in _cases(search):
        if layout != _CONTIGUOUS and time.monotonic() > end:
            left_out += 1
            continue
        report = search.runner.judge(case, Depth.SEARCH)
        record.take(case, report)
        made.append(_judged(dtype, layout, report))
    tallies = record.tallies([], frozenset(CLASSES))
    decided = tuple(name for name, tally in tallies.items() if tally.decided)
    forward = operator.forward or operator
    return CheckedKernel(
        kernel=search.node_id,
        signature=operator.signature_text(),
        oracle=defined(forward.oracle) if is_brought(forward) else "",
        cases=tuple(made),
        left_out=left_out,
        decided=decided,
        open=tuple(
            n
            for n in tallies
            if n in record.classes and n not in decided and not CLASSES[n].on_request
        ),
        inapplicable={c.id: c.scope for c in ATTRIBUTION if c.id not in record.classes},
        uncompared=record.uncompared([], "no small case is in its domain")
        if not any(case.answer is Answer.VIOLATES for case in made)
        else "",
        needs_gpu=record.needs_gpu,
    )


def _judged(dtype: str, layout: str, report: CaseReport) -> JudgedCase:
    if report.failure is not None:
        text = f"{report.failure.contract}: {report.failure.message}"
        return JudgedCase(dtype, layout, Answer.VIOLATES, text)
    if report.error is not None:
        return JudgedCase(dtype, layout, Answer.ERROR, report.error)
    if report.unsupported is not None:
        return JudgedCase(dtype, layout, Answer.UNSUPPORTED, report.unsupported)
    if report.refusal is not None:
        why = report.example or report.refusal
        return JudgedCase(dtype, layout, Answer.REJECTED, why)
    verdicts = report.verdicts.items()
    if any(CLASSES[n].compares and v is Verdict.CONFORMS for n, v in verdicts):
        return JudgedCase(dtype, layout, Answer.OK)
    why = next((note for note in report.notes if "undecided" in note), "")
    return JudgedCase(dtype, layout, Answer.UNDECIDED, why)


def _cases(search: KernelSearch) -> Iterator[tuple[str, str, Case]]:
    """Yield data types, layouts and cases: all data types of a layout first."""
    kernel = search.loaded.kernel
    drawn = small_cases(kernel, search.budget)
    if not drawn:
        return
    # Of those with most layouts one that has elements enough to show something.
    case = max(drawn, key=lambda c: (len(_kinds(kernel, c)), min(c.elements, _ENOUGH)))
    for kind in _kinds(kernel, case):
        for dtype in kernel.declaration.dtypes:
            made = next(ordinary_cases(kernel.operator, case))
            made = _laid_out(kernel, in_dtype(kernel.operator, made, dtype), kind)
            if kernel.operator.accepts(made, kernel.declaration):
                yield dtype, kind, made


def _kinds(kernel: BoundKernel, case: Case) -> list[str]:
    """Return the layouts that some tensor of a case can have, contiguous first."""
    found = {_CONTIGUOUS: None}
    for name, spec in case.tensors.items():
        apart = _is_apart(kernel, name)
        options = layout_options(spec.shape, kernel.declaration, inplace=apart)
        found |= dict.fromkeys(options)
    return list(found)


def _is_apart(kernel: BoundKernel, name: str) -> bool:
    """Whether no two indices of an argument may be one element in memory."""
    return (
        name in kernel.declaration.inplace or not kernel.operator.tensors[name].repeats
    )


def _laid_out(kernel: BoundKernel, case: Case, kind: str) -> Case:
    """Return the case with each tensor that can have it in a layout."""
    claims, tensors = kernel.declaration, {}
    for name, spec in case.tensors.items():
        options = layout_options(spec.shape, claims, inplace=_is_apart(kernel, name))
        chosen = kind if kind in options else _CONTIGUOUS
        strides, offset = build(chosen, spec.shape, _SEED, spec.dtype, claims)
        tensors[name] = replace(spec, strides=strides, offset=offset)
    return replace(case, tensors=tensors)
