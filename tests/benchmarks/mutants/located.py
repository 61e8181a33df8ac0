"""Mutants whose failure is found: how often the line that was changed is named.

    python -m tests.benchmarks.mutants.located --every 4 --jobs 16 --seconds 520
    python -m tests.benchmarks.mutants.located --every 30 --jobs 16 --repair 30

Each mutant is searched and its failing case reduced in its own process, in Triton's
interpreter, then its line is looked for as a run does. It fails on a line that is
printed as certain and is another one. With `--repair`, what mends a mutant goes through
all gates of `kfuzz repair`, its search of so many seconds, and what passes is searched
ten times as long. It fails on a patch that this refutes.
"""

import argparse
import ast
import json
import math
import multiprocessing
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final, NamedTuple

os.environ["TRITON_INTERPRET"] = "1"

import torch

from kfuzz.cli.run import events
from kfuzz.contracts.classes import CLASSES
from kfuzz.core.budget import Budget, Depth
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Failure
from kfuzz.engine.config import RunConfig
from kfuzz.engine.reduce import reduce_case
from kfuzz.engine.repair import MOST, Gates, searched
from kfuzz.engine.search.found import drawn
from kfuzz.engine.workers.zygotes import budget_for
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.evaluation.locating import Draft, Locating, Overdue, limited
from kfuzz.strategies.parameters import may_be_drawn
from kfuzz.targets.load import LoadedKernel, Source, load
from tests.benchmarks.mutants.mutator import Mutant, written
from tests.benchmarks.mutants.run import chosen

PATCHES: Final = (
    "family", "found", "past gates 1 and 2", "past all gates", "mutants repaired",
    "searched ten times as long", "refuted by that",
)  # fmt: skip
LONGER: Final = 10.0
"""How much longer what all gates let pass is searched than they search it."""
SEARCHING: Final = 12.0
"""Seconds for a failing case, and again for its minimum."""
HEADS: Final = (
    "family", "found", "top 1", "top 3", "certain", "wrong", "patch", "original",
    "seconds, median", "seconds, 90 %",
)  # fmt: skip


@dataclass
class Row:
    """What came of one mutant.

    Attributes:
        id: of the mutant.
        family: of its rule.
        truth: the changed line.
        accessed: the line of the first stray access, 0 where there is none.
        lines: those named, the likeliest first.
        certain: whether the first is printed as certain.
        evidence: what is printed.
        seconds: of processor time.
        tried: changes that were run.
        run: lines that the failing call runs.
        patches: changes that pass the first two gates of `kfuzz repair`.
        restored: which of these is the correct kernel, counted from 1; 0 where none is.
        accepted: changes that pass all gates.
        searched: how many of these were searched ten times as long.
        refuted: what that found against them.
        notes: what became of each change that was searched.
    """

    id: str
    family: str
    truth: int
    accessed: int = 0
    lines: list[int] = field(default_factory=list)
    certain: bool = False
    evidence: str = ""
    seconds: float = 0.0
    tried: int = 0
    run: int = 0
    patches: int = 0
    restored: int = 0
    accepted: int = 0
    searched: int = 0
    refuted: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def within(self, n: int) -> bool:
        """Whether the changed line is among the first."""
        return self.truth in self.lines[:n]


def failing(
    evaluator: Evaluator, cases: Sequence[Case], seconds: float
) -> tuple[Case, Case, Failure] | None:
    """Return the smallest failing case, that which it comes from, and its failure."""
    end = time.monotonic() + seconds
    found: list[tuple[int, Case, Failure]] = []
    for case in cases:
        if time.monotonic() >= end:
            break
        if failure := _failure(evaluator, case):
            found.append((case.elements, case, failure))
            if len(found) >= 8:
                break
    if not found:
        return None
    _, first, failure = min(found, key=lambda f: f[0])
    kernel, signature = evaluator.kernel, failure.signature(evaluator.kernel.name)

    def fails(case: Case) -> bool:
        now = _failure(evaluator, case)
        return now is not None and (
            now.signature(signature.kernel).symptom == signature.symptom
        )

    def accepts(case: Case) -> bool:
        operator, claims = kernel.operator, kernel.declaration
        return operator.accepts(case, claims) and may_be_drawn(
            operator.inputs, claims, case
        )

    pinned = evaluator.pin(first)
    if not fails(pinned):
        return None
    until = time.monotonic() + seconds
    case, _ = reduce_case(pinned, fails, accepts, deadline=until)
    return case, first, _failure(evaluator, case) or failure


def _failure(evaluator: Evaluator, case: Case) -> Failure | None:
    with suppress(Overdue), limited(10.0):
        return evaluator.judge(case, Depth.BASE).failure
    return None


def rows_of(mutant: Mutant, options: argparse.Namespace) -> Iterator[Row | None]:
    """Yield what comes of a mutant, anew when more is known; None if no case fails."""
    name, file = mutant.specimen.name, options.folder / mutant.file
    loaded = load(Source(file=file, only=(name,)), root=file.parent)[0]
    budget = budget_for(loaded.kernel, "interpret")
    evaluator = Evaluator(loaded.kernel, setting_of("cpu", budget, CLASSES))
    cases = drawn(loaded)
    found = failing(evaluator, cases, SEARCHING)
    if found is None:
        yield None
        return
    case, first, failure = found
    row = Row(mutant.id, mutant.rule.family, mutant.line)
    if failure.accesses:
        row.accessed = int(failure.accesses[0].line.rpartition(":")[2] or 0)
    began = time.process_time()
    made = Locating(evaluator, failure.signature(name), file.parent)
    line = made.line([case, first, *cases], time.monotonic() + options.limit)
    row.seconds = time.process_time() - began
    named = [line] if line else []
    likely = [edit.line for edit in (*named, *made.fixes, *(e for _, e in made.nearly))]
    row.lines, row.tried = list(dict.fromkeys(likely)), made.tried
    row.run = sum(len(code.lines) for code in made.codes)
    if line is not None:
        row.certain, row.evidence = line.certain, line.evidence
    yield row
    if options.repair is None:
        return
    drafts = made.drafts(time.monotonic() + options.limit)
    correct = ast.dump(ast.parse(mutant.specimen.text))
    row.patches = len(drafts)
    alike = [ast.dump(ast.parse(draft.after)) == correct for draft in drafts]
    row.restored = alike.index(True) + 1 if any(alike) else 0
    yield row
    if options.repair > 0:
        yield from _gated(row, drafts, loaded, options)


def _gated(
    row: Row,
    drafts: Sequence[Draft],
    loaded: LoadedKernel,
    options: argparse.Namespace,
) -> Iterator[Row]:
    """Have changes go through the last gates, and search longer what these let pass."""
    stop, folder = threading.Event(), options.folder / f"{Path(drafts[0].path).stem}_"
    folder.mkdir()
    run = RunConfig(
        (), folder, folder / "corpus", device="interpret", jobs=1, prove=False,
        budget=Budget(max_time=options.repair, max_findings=1),
    )  # fmt: skip
    gates = Gates(loaded, run, events, (), stop)
    accepted: list[tuple[int, Draft]] = []
    for number, draft in enumerate(drafts[:MOST], 1):
        passes, text = gates.passes(draft)
        row.notes.append(f"{number}: {draft.line.evidence}: {text}")
        if passes:
            accepted.append((number, draft))
            row.accepted = len(accepted)
        yield row
    long = Budget(max_time=LONGER * options.repair, max_findings=1)
    for number, draft in accepted:
        if time.time() + LONGER * options.repair > options.until:
            row.notes.append(f"{number}: no time to search it longer")
            yield row
            continue
        file = folder / f"change_{number}.py"
        file.write_text(draft.after, encoding="utf-8")
        target = f"{file}::{loaded.kernel.name}"
        longer = replace(run, targets=(target,), budget=long, seed=1)
        passes, text = searched(events(longer, stop=stop), ())
        row.searched += 1
        row.notes.append(f"{number}, searched longer: {text}")
        if not passes:
            row.refuted.append(f"{draft.line.evidence}: {text}")
        yield row


# Each mutant in a fork of this process, which has imported what it needs.


class Fork(NamedTuple):
    """A mutant that is being looked at.

    Attributes:
        mutant: the mutant.
        process: the fork.
        log: what it prints.
        until: `time.time()` at which it is ended.
    """

    mutant: Mutant
    process: Any
    log: Path
    until: float


def _in_fork(
    mutant: Mutant, options: argparse.Namespace, log: Path, to: Connection
) -> None:
    os.setsid()
    with log.open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        torch.set_num_threads(1)
        try:
            for row in rows_of(mutant, options):
                to.send(row and asdict(row))
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    to.close()
    os._exit(0)


def side_by_side(
    mutants: Sequence[Mutant], options: argparse.Namespace
) -> Iterator[tuple[Mutant, dict[str, Any] | None, str]]:
    """Yield mutants with their rows as they are done, and what kept one from its end.

    The row is None where no case fails, and where nothing came of it at all.
    """
    context = multiprocessing.get_context("fork")
    left, running = list(reversed(mutants)), {}
    rows: dict[str, dict[str, Any] | None] = {}
    each = 2 * SEARCHING + 2 * options.limit + 30.0
    if options.repair:
        each += (2 * MOST + 2 * LONGER) * (options.repair + 30.0)
    while left or running:
        while left and len(running) < options.jobs and time.time() < options.until:
            mutant = left.pop()
            log = options.folder / f"{Path(mutant.file).stem}.log"
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(
                target=_in_fork, args=(mutant, options, log, theirs)
            )
            process.start()
            theirs.close()
            last = min(time.time() + each, options.until)
            running[ours] = Fork(mutant, process, log, last)
        if not running:
            return
        for ours in wait(list(running), 0.5):
            fork = running[ours]
            try:
                rows[fork.mutant.id] = ours.recv()
            except EOFError:
                fork.process.join()
                del running[ours]
                code, why = fork.process.exitcode, ""
                if code:
                    lines = fork.log.read_text("utf-8", "replace").strip().splitlines()
                    why = f"exit code {code}: {(lines or ['no output'])[-1][:200]}"
                yield fork.mutant, rows.get(fork.mutant.id), why
        for ours, fork in list(running.items()):
            if time.time() >= fork.until:
                with suppress(ProcessLookupError):
                    os.killpg(fork.process.pid, signal.SIGKILL)
                fork.process.join()
                del running[ours]
                yield fork.mutant, rows.get(fork.mutant.id), "the time was over"


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table, by family too, and the mutants whose line is not the first."""
    yield f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}"
    families = dict.fromkeys(r.family for r in rows)
    for name in (*families, ""):
        of = [r for r in rows if name in ("", r.family)]
        seconds = sorted(r.seconds for r in of)
        cells = (
            name or "**all**", len(of), _share(of, lambda r: r.within(1)),
            _share(of, lambda r: r.within(3)), _share(of, lambda r: r.certain),
            sum(map(is_wrong, of)), _share(of, lambda r: r.patches > 0),
            _share(of, lambda r: r.restored > 0),
            f"{statistics.median(seconds or [0]):.1f}",
            f"{(seconds or [0])[math.ceil(0.9 * len(of)) - 1]:.1f}",
        )  # fmt: skip
        yield f"| {' | '.join(map(str, cells))} |"
    if not rows:
        return
    plain = _share(rows, lambda r: r.accessed == r.truth)
    run = statistics.median(r.run for r in rows)
    yield f"\nThe access of a memory finding is that line in {plain} % of all; in the"
    yield f"others a reader has the lines that the call runs ({run:.0f}, median).\n"
    for row in rows:
        if not row.within(1):
            yield f"* {row.id}: line {row.truth}, named {row.lines[:3]}"
    for row in filter(is_wrong, rows):
        yield f"WRONG: {row.id}: line {row.truth}, not {row.lines[0]}: {row.evidence}"


def of_patches(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table of what the gates let pass, and what was said of each change."""
    yield f"\n| {' | '.join(PATCHES)} |\n|{'---|' * len(PATCHES)}"
    for name in (*dict.fromkeys(r.family for r in rows), ""):
        of = [r for r in rows if name in ("", r.family)]
        cells = (
            name or "**all**", len(of), sum(r.patches for r in of),
            sum(r.accepted for r in of), _share(of, lambda r: r.accepted > 0) + " %",
            sum(r.searched for r in of), sum(len(r.refuted) for r in of),
        )  # fmt: skip
        yield f"| {' | '.join(map(str, cells))} |"
    for row in rows:
        yield from (f"* {row.id}: {note}" for note in row.notes)
    for row in rows:
        yield from (f"WRONG PATCH: {row.id}: {why}" for why in row.refuted)


def is_wrong(row: Row) -> bool:
    """Whether another line is printed as certain."""
    return row.certain and not row.within(1)


def _share(rows: Sequence[Row], of: Callable[[Row], bool]) -> str:
    return f"{100 * sum(map(of, rows)) / len(rows):.0f}" if rows else "–"


def main() -> int:
    """Search, locate, and print the table."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parse.add_argument("--rules", nargs="*", default=["*"])
    parse.add_argument("--kernels", nargs="*", default=["*"])
    parse.add_argument("--every", type=int, default=1, help="take one in so many")
    parse.add_argument("--offset", type=int, default=0, help="of the first one taken")
    parse.add_argument("--limit", type=float, default=20.0, help="seconds of each")
    parse.add_argument("--seconds", type=float, default=280.0, help="of this call")
    parse.add_argument("--jobs", type=int, default=1, help="mutants side by side")
    parse.add_argument("--repair", type=float, metavar="SECONDS", help="look for "
                       "patches; what is not 0 searches them so long")  # fmt: skip
    parse.add_argument("--keep", type=Path, help="rows of earlier calls, and of this")
    options = parse.parse_args()
    options.device, options.until = "interpret", time.time() + options.seconds
    warnings.simplefilter("ignore")
    os.environ["OMP_NUM_THREADS"] = "1"
    every = chosen(options)
    known: dict[str, dict[str, Any]] = {}
    if options.keep and options.keep.exists():
        lines = options.keep.read_text("utf-8").splitlines()
        known = {made["id"]: made for made in map(json.loads, lines)}
    left = [mutant for mutant in every if mutant.id not in known]
    random.Random(0).shuffle(left)  # what the time leaves out is of no one kind
    problems = []
    with tempfile.TemporaryDirectory(prefix="located-") as name:
        options.folder = Path(name)
        written(options.folder, left)
        for mutant, row, why in side_by_side(left, options):
            problems += [f"PROBLEM: {mutant.id}: {why}"] if why else []
            print(mutant.id, row, why, file=sys.stderr, flush=True)
            if why and (row is None or options.repair):  # it is done again
                continue
            made = known[mutant.id] = row or {"id": mutant.id}
            if options.keep:
                with options.keep.open("a", encoding="utf-8") as file:
                    file.write(f"{json.dumps(made)}\n")
    rows = [Row(**m) for m in known.values() if len(m) > 1]
    print(f"{len(known)} of {len(every)} mutants, {len(rows)} found to be wrong\n")
    print("\n".join(table(rows)))
    if options.repair:
        print("\n".join(of_patches(rows)))
    print("\n".join(problems))
    return int(any(is_wrong(row) or row.refuted for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
