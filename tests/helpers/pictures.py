"""A corpus of kernels with failing tensors and nights, for the tests of reports."""

import base64
import math
from dataclasses import replace
from pathlib import Path

from kfuzz.core.event import (
    ContractTally,
    Event,
    Exited,
    KernelFinished,
    RunFinished,
    RunStarted,
)
from kfuzz.core.finding import Change, Finding, Target
from kfuzz.core.verdict import ErrorMap, Failure, Kind, Signature, State, Tried, Verdict
from kfuzz.store.corpus import Corpus
from kfuzz.store.files import keep_run
from tests.helpers.events import LARGEST, SEARCHED, TALLIES, finished
from tests.helpers.findings import finding

SIZES = (0, 256, 4_096, 65_536)
OTHERS = {
    f"{name}": ContractTally(Verdict.CONFORMS, 400, 12)
    for name in (
        "K-MEM-01", "K-MEM-03", "K-MEM-04", "K-MET-01", "K-LIV-01", "K-REF-01",
        "C-ORD-01", "C-ORD-02", "C-PRC-02", "C-PRC-03", "C-CMP-01", "C-CMP-03",
    )
}  # fmt: skip
DTYPES = ("bfloat16", "float16", "float32")


def tensor(
    rows: int = 40, columns: int = 70, *, worst: float = 9.5, code: int = 200
) -> ErrorMap:
    """Return a map whose tail of columns misses, one element of it by more.

    Args:
        rows: of the output.
        columns: of the output.
        worst: the actual value of that element.
        code: its error.
    """
    at = rows // 2, columns - 3
    made = ErrorMap("y", (rows, columns), 1, 1, "", at)
    down, across = made.block
    high, wide = -(-rows // down), -(-columns // across)
    cells = bytes(
        code
        if (r, c) == (at[0] // down, at[1] // across)
        else 150
        if c >= wide - 3
        else 100 + (r * 7 + c) % 24
        for r in range(high)
        for c in range(wide)
    )
    places = [(r, c) for r in made.around[0] for c in made.around[1]]
    missing = [c >= columns - 6 for _, c in places]
    expected = tuple(round(math.sin(r / 3 + c / 5), 6) for r, c in places)
    actual = tuple(
        worst if p == at else 0.0 if m else e
        for p, m, e in zip(places, missing, expected, strict=True)
    )
    near = bytes(
        code if p == at else 150 if m else 110
        for p, m in zip(places, missing, strict=True)
    )
    return replace(
        made, rows=high, columns=wide, cells=base64.b64encode(cells).decode(),
        actual=actual, expected=expected, near=base64.b64encode(near).decode(),
    )  # fmt: skip


def failing(kernel: str, errors: ErrorMap, state: State = State.CONFIRMED) -> Finding:
    """Return a finding of such an output."""
    failure = Failure(
        "C-PRC-01", Kind.VALUE, "off", "y", index=errors.worst, got=math.nan,
        expected=0.5, low=0.49, high=0.51, elements=9, errors=errors,
    )  # fmt: skip
    found = (Change(State.NEW, "2026-03-02T01:00:00Z"),)
    return finding(
        kernel=kernel,
        signature=Signature(kernel, "C-PRC-01", Kind.VALUE, "y"),
        target=Target("kernels/mine.py", kernel),
        failure=failure,
        first_errors=errors,
        state=state,
        history=(*found, Change(state, "2026-03-20T01:00:00Z")),
    )


def seen(worst: float, cases: int = 100) -> tuple[Tried, ...]:
    """Return what a run saw of a kernel, the given error in float16 at 4,096."""
    most = dict(zip(SIZES, (*SIZES[1:], None), strict=True))
    return tuple(
        Tried(
            cases, above=above, most=most[above], dtype=dtype,
            worst=worst if (above, dtype) == (256, "float16") else 0.4 / (1 + above),
        )
        for above in SIZES
        for dtype in DTYPES
    )  # fmt: skip


def fill(
    root: Path, kernels: int, runs: int = 30, *, every: int = 2, stem: str = "kernel"
) -> list[Event]:
    """Fill a corpus, every so many kernels failing; return the last run's events."""
    corpus, events = Corpus(root), list[Event]()
    for i in range(kernels):
        name, node = f"{stem}_{i:03}", f"kernels/mine.py::{stem}_{i:03}"
        made: list[Finding] = []
        if i % every == 0:
            state = State.FIXED if i % 10 == 8 else State.CONFIRMED
            made = [failing(name, tensor(40 + i, 70), state)]
            corpus.save(made[0])
        worst = math.inf if i % 4 == 0 else 602.0 if i % every == 0 else 0.9
        events.append(
            finished(
                *made,
                kernel=node,
                errors=seen(worst),
                searched=SEARCHED,
                largest=LARGEST,
                contracts=TALLIES | OTHERS,
            )
        )
    for night in range(1, runs + 1):
        errors = {
            k.kernel: tuple(replace(t, cases=t.cases + night % 5) for t in k.errors)
            for k in events
            if isinstance(k, KernelFinished)
        }
        keep_run(root, f"2026-03-{night:02}T00:00:00Z", errors)
    started = RunStarted(7, "cpu", tuple(errors), when="2026-03-30T00:00:00Z")
    done = RunFinished(60.0, interrupted=False, seed=7, device="cpu")
    return [started, *events, done, Exited(1, "", "kfuzz run kernels --seed 7")]
