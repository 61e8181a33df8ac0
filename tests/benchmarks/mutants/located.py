"""Mutants whose failure is found: how often the line that was changed is named.

    python -m tests.benchmarks.mutants.located --every 22

Each mutant is searched and its failing case reduced in this process, in Triton's
interpreter, then its line is looked for as a run does. It fails on a line that is
printed as certain and is another one, and on any line of a correct kernel.
"""

import argparse
import ast
import json
import math
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

os.environ["TRITON_INTERPRET"] = "1"

import torch

from kfuzz.contracts.classes import CLASSES
from kfuzz.core.budget import Depth
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Failure
from kfuzz.engine.reduce import reduce_case
from kfuzz.engine.search.locate import drawn
from kfuzz.engine.workers.zygotes import budget_for
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.evaluation.locating import Locating, Overdue, limited
from kfuzz.strategies.parameters import may_be_drawn
from kfuzz.targets.load import Source, load
from tests.benchmarks.mutants.mutator import Mutant, written
from tests.benchmarks.mutants.run import chosen

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


def row_of(mutant: Mutant, folder: Path, limit: float, kept: Path) -> Row | None:
    """Return what comes of a mutant; None where no case fails.

    Args:
        mutant: the mutant.
        folder: where its file is.
        limit: seconds for its line, and again for what mends it.
        kept: where the texts of its patches are to lie.
    """
    name, file = mutant.specimen.name, folder / mutant.file
    loaded = load(Source(file=file, only=(name,)), root=file.parent)[0]
    budget = budget_for(loaded.kernel, "interpret")
    evaluator = Evaluator(loaded.kernel, setting_of("cpu", budget, CLASSES))
    cases = drawn(loaded)
    found = failing(evaluator, cases, 15.0)
    if found is None:
        return None
    case, first, failure = found
    row = Row(mutant.id, mutant.rule.family, mutant.line)
    if failure.accesses:
        row.accessed = int(failure.accesses[0].line.rpartition(":")[2] or 0)
    began = time.process_time()
    made = Locating(evaluator, failure.signature(name), file.parent)
    line = made.line([case, first, *cases], time.monotonic() + limit)
    row.seconds = time.process_time() - began
    correct = ast.dump(ast.parse(mutant.specimen.text))
    for number, draft in enumerate(made.drafts(time.monotonic() + limit), 1):
        row.patches = number
        kept.joinpath(f"{file.stem}__{number}.py").write_text(draft.after, "utf-8")
        if ast.dump(ast.parse(draft.after)) == correct:
            row.restored = number
    row.lines, row.tried = made.lines, made.tried
    row.run = sum(len(code.lines) for code in made.codes)
    if line is not None:
        row.certain, row.evidence = line.certain, line.evidence
    return row


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
            _share(of, lambda r: r.restored > 0), f"{statistics.median(seconds):.1f}",
            f"{seconds[math.ceil(0.9 * len(of)) - 1]:.1f}",
        )  # fmt: skip
        yield f"| {' | '.join(map(str, cells))} |"
    plain = _share(rows, lambda r: r.accessed == r.truth)
    run = statistics.median(r.run for r in rows)
    yield f"\nThe access of a memory finding is that line in {plain} % of all; in the"
    yield f"others a reader has the lines that the call runs ({run:.0f}, median).\n"
    for row in rows:
        if not row.within(1):
            yield f"* {row.id}: line {row.truth}, named {row.lines[:3]}"
    for row in filter(is_wrong, rows):
        yield f"WRONG: {row.id}: line {row.truth}, not {row.lines[0]}: {row.evidence}"


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
    parse.add_argument("--keep", type=Path, help="rows of earlier calls, and of this")
    options = parse.parse_args()
    options.device = "interpret"
    end = time.monotonic() + options.seconds
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    every = chosen(options)
    known: dict[str, dict] = {}
    if options.keep and options.keep.exists():
        lines = options.keep.read_text("utf-8").splitlines()
        known = {made["id"]: made for made in map(json.loads, lines)}
    with tempfile.TemporaryDirectory(prefix="located-") as name:
        folder = Path(name)
        kept = options.keep.parent if options.keep else folder
        written(folder, every)
        for mutant in every:
            if mutant.id in known or time.monotonic() >= end:
                continue
            try:
                row = row_of(mutant, folder, options.limit, kept)
            except Exception as error:
                print(f"{mutant.id}: {error!r}", file=sys.stderr, flush=True)
                continue
            made = {"id": mutant.id} if row is None else asdict(row)
            known[mutant.id] = made
            print(made, file=sys.stderr, flush=True)
            if options.keep:
                with options.keep.open("a", encoding="utf-8") as file:
                    file.write(f"{json.dumps(made)}\n")
    rows = [Row(**m) for m in known.values() if len(m) > 1]
    print(f"{len(known)} of {len(every)} mutants, {len(rows)} found to be wrong\n")
    print("\n".join(table(rows)))
    return int(any(map(is_wrong, rows)))


if __name__ == "__main__":
    raise SystemExit(main())
