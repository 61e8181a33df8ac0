"""The line of source that a finding comes from, asked of a child of its own.

It runs on the CPU, in Triton's interpreter: a finding of a GPU that does not show there
has no line.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from itertools import count, zip_longest
from pathlib import Path
from typing import Any, Final

from kfuzz.core.errors import KfuzzError
from kfuzz.core.event import Event, FindingSaved, Notice
from kfuzz.core.finding import Finding, Line, Patch
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import ATTRIBUTED, FAILING
from kfuzz.engine.config import ReplayConfig
from kfuzz.engine.confirm import is_by_chance
from kfuzz.engine.replay import locate as load_kernel
from kfuzz.engine.workers.jobs import Stopped, fair_share, streamed
from kfuzz.engine.workers.runner import ENDS_CHILD, runner_of
from kfuzz.engine.workers.zygotes import Backend, budget_for
from kfuzz.evaluation.drawing import search_round, strategy_of
from kfuzz.evaluation.locating import Located
from kfuzz.execution.device.backends import BACKENDS
from kfuzz.store.corpus import Corpus, Stored
from kfuzz.targets.load import LoadedKernel

SECONDS: Final = 20.0
"""Of each finding of a run at most."""
LONG_SECONDS: Final = 180.0
"""Where a person waits for one."""
# Drawn beside the minimum: the most elements of a tensor, and how many of each.
_DRAWN: Final = (1 << 12, 1 << 8, 1 << 6)
_EACH: Final = 50
INTERPRET: Final = "interpret"


def unfit(finding: Finding) -> str:
    """Return why no changed kernel can be held against a finding, "" if one can."""
    if finding.target.reference:
        return "a candidate that nobody vouches for runs in its sandbox only"
    if not finding.operator:
        return "it was seen in a program, and is no case of a bound kernel"
    if finding.case.large or not finding.case.pinned:
        return "the values of its smallest case are not explicit"
    if is_by_chance(finding.signature):
        return "chance decides whether it shows"
    if finding.signature.kind in ENDS_CHILD:
        return "it ends the process that it shows in"
    return "" if finding.state in ATTRIBUTED else f"its state is {finding.state}"


def drawn(loaded: LoadedKernel) -> list[Case]:
    """Return cases of a kernel's domain that a change is held against, of all sizes."""
    made: list[list[Case]] = []
    budget = budget_for(loaded.kernel, INTERPRET)
    for elements in _DRAWN:
        few = replace(budget, elements=min(elements, budget.elements))
        of_size: list[Case] = []
        made.append(of_size)
        with suppress(KfuzzError):  # no shape of the domain is so small
            strategy = strategy_of(loaded.kernel, few)
            if strategy is not None:
                search_round(strategy, of_size.append, cases=_EACH, seed_value=elements)
    return [case for each in zip_longest(*made) for case in each if case is not None]


def line_of(
    loaded: LoadedKernel,
    finding: Finding,
    backend: Backend,
    *,
    root: Path,
    seconds: float,
    stopped: Callable[[], bool],
    others: Sequence[Case] = (),
    repair: bool = False,
) -> Located:
    """Return the line that a finding comes from, and what mends it.

    Args:
        loaded: its kernel.
        finding: the finding, confirmed.
        backend: where Triton kernels are interpreted.
        root: the project.
        seconds: how long that may take.
        stopped: whether a signal asks to stop.
        others: further cases that a change is held against.
        repair: whether changes are returned that mend it.
    """
    end = time.monotonic() + seconds
    runner = runner_of(
        loaded, backend, root=root, quiet=lambda: True,
        expired=lambda: stopped() or time.monotonic() >= end,
    )  # fmt: skip
    with closing(runner), suppress(Stopped, KfuzzError):
        is_reduced = finding.case.elements < finding.first.elements
        first = [finding.first] if is_reduced else []
        cases = [finding.case, *first, *others, *drawn(loaded)]
        return runner.line_of(cases, finding.signature, end, repair)
    return Located(why="there was no time for it")


def located(
    kernels: Iterable[Any],
    backend: Backend,
    corpus: Corpus,
    *,
    root: Path,
    jobs: int,
    seconds: float,
    stopped: Callable[[], bool],
) -> Iterator[Event]:
    """Name the lines of what a campaign has found.

    Args:
        kernels: its searches, which get the findings as they are stored.
        backend: where it ran.
        corpus: where they are kept.
        root: the project.
        jobs: kernels whose lines are sought at once.
        seconds: how long that may take in all.
        stopped: whether a signal asks to stop.
    """

    def of_kernel(kernel: Any, findings: list[Finding]) -> Iterator[Event]:
        for finding in findings:
            fair = fair_share(end, total - next(done), jobs)
            if stopped() or fair <= 0:
                return
            line, _, why = line_of(
                kernel.loaded, finding, used, root=root, seconds=min(fair, SECONDS),
                stopped=stopped,
            )  # fmt: skip
            if why:
                yield Notice(kernel.node_id, f"no line of {finding.id}: {why}")
            if line is not None:
                yield _with_line(kernel, finding, line, corpus)

    each = [(k, [f for f in k.findings.values() if _without(f)]) for k in kernels]
    total, done = sum(len(findings) for _, findings in each), count()
    end = time.monotonic() + seconds
    own = total > 0 and not BACKENDS[backend.name].has.on_host
    used = Backend(INTERPRET, isolate="process") if own else backend
    with closing(used) if own else nullcontext():
        pieces = iter([of_kernel(*pair) for pair in each])
        yield from streamed(lambda: next(pieces, None), min(jobs, total))


def _without(finding: Finding) -> bool:
    """Whether a line is sought of a finding."""
    return not finding.line and finding.state in FAILING and not unfit(finding)


def _with_line(kernel: Any, finding: Finding, line: Line, corpus: Corpus) -> Event:
    """Keep a finding with its line, and as one with what the same change mends."""
    made, path = kept(corpus, finding, line)
    same = [
        f
        for f in kernel.findings.values()
        if f.id != made.id
        and f.state in FAILING
        and line.change
        and f.line
        and f.line.change == line.change
    ]
    if same:  # it mends both: they are one fault
        first, second = sorted((same[0], made), key=lambda f: f.severity)
        also = (*first.also, *second.signatures)
        kernel.drop(kernel.findings[second.id])
        made = replace(first, also=also)
        path = corpus.replace(second, made)
    kernel.keep(made, path)
    new = made.id not in kernel.stored
    return FindingSaved(kernel.node_id, made, str(path), new, "done")


def locate_stored(
    stored: Stored, config: ReplayConfig, *, stopped: Callable[[], bool]
) -> tuple[Stored, str]:
    """Return a stored finding with its line, stored too, or why it has none.

    Raises:
        KfuzzError: if the entry's kernel cannot be loaded.
    """
    finding = replace(stored.finding, line=None)
    if why := unfit(finding):
        return stored, why
    loaded = load_kernel(finding, config)
    with closing(Backend(INTERPRET, isolate=config.isolate)) as backend:
        found = line_of(
            loaded, finding, backend, root=config.root, seconds=LONG_SECONDS,
            stopped=stopped,
        )  # fmt: skip
    if found.line is None:
        return stored, found.why or "no change of one expression lets its case pass"
    return Stored(*kept(Corpus(config.corpus), finding, found.line)), ""


def kept(
    corpus: Corpus, finding: Finding, line: Line, patches: tuple[Patch, ...] = ()
) -> tuple[Finding, Path]:
    """Store the line of a finding, and return it as it is stored, and where."""

    def with_line(stored: Finding | None) -> Finding:
        return replace(stored or finding, line=line, patches=patches)

    made = corpus.change(finding, with_line)
    assert made is not None
    return made, corpus.root / made.folder
