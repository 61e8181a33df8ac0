"""The page: how often is the line that a finding names the faulty one, and mended?

    python -m tests.benchmarks.lines --keep FOLDER --jobs 16 --seconds 520
    python -m tests.benchmarks.lines --keep FOLDER --write

Measures of every set what FOLDER does not hold yet, until the time is over, and prints
the table of all it holds; called again it goes on. `--write` puts the table on the
page. Known faults need `--wheels`. It fails on a line that is printed as certain and is
another one, and on a wrong patch.
"""

import argparse
import fnmatch
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.benchmarks.late_faults.__main__ import MOST, found, searched
from tests.benchmarks.late_faults.table import LATE
from tests.benchmarks.mutants.located import Row, is_wrong

HERE: Final = Path(__file__).parent
PAGE: Final = HERE / "README.md"
BEGIN, END = "<!-- the table -->", "<!-- its end -->"
HEADS: Final = (
    "set", "measured", "with a finding", "named", "top 1, %", "top 3, %", "certain, %",
    "certain and wrong", "seconds, median",
)  # fmt: skip
MUTANTS: Final = ("tests.benchmarks.mutants.located", "--every", "4")
REPAIRS: Final = ("tests.benchmarks.mutants.located", "--every", "33", "--repair", "10")
KNOWN: Final = ("tests.benchmarks.known_faults.located",)
# Of the kernels from public threads: what the lines have of which one is at fault.
KINDS: Final = {
    "cumprod_grad": ("if ctx.divides", ") / v", "apply(x, True)"),
    "dropout_seed": ("seeds.data_ptr()", "seeds = "),
    "group_route": ("kept, k, 0.0)", "v, FILL)"),
    "hadamard12": ("h[5, 1:]", "_slipped())"),
    "maxpool_dilated": ("if STEP", "dilation, False)"),
    "merge_lse": ("- m), tl.exp", "lse = m +", "sb, False)"),
    "rms_trunc": (">> 16", "eps, True)"),
    "route_bias": ("if AGAIN", "k, False)"),
    "scatter_bcast": ("if dense", "src, True)"),
    "swa_short": ("window - less", "window, 1)"),
}


class Planted(NamedTuple):
    """A kernel with a fault.

    Attributes:
        set: that it is of.
        name: of the kernel.
        file: where it is.
        lines: of which one is at fault.
    """

    set: str
    name: str
    file: Path
    lines: list[int]

    @property
    def key(self) -> str:
        """What its row is kept by."""
        return f"{self.set}: {self.file.stem}::{self.name}"


def planted() -> Iterator[Planted]:
    """Yield the kernels that are searched by a command of their own."""
    file = HERE / "torch_functions.py"
    lines = file.read_text("utf-8").splitlines()
    name = ""
    for number, line in enumerate(lines, 1):
        if made := re.match(r"def (\w+)", line):
            name = made[1]
        if line.endswith("# FAULT"):
            yield Planted("torch functions", name, file, [number])
    file = HERE.parent / "late_faults" / "kernels.py"
    lines = file.read_text("utf-8").splitlines()
    for late in LATE:
        if late.threshold > MOST["interpret"]:
            continue
        name = "_normed" if "norm" in late.family else late.family
        first = next(n for n, x in enumerate(lines) if x.startswith(f"def {name}("))
        rest = range(first + 1, len(lines))
        last = next((n for n in rest if lines[n].startswith(("@", "def "))), len(lines))
        bound = re.compile(rf"\bmin\(\w+, {late.axis}\)")
        chosen = [n + 1 for n in range(first, last) if bound.search(lines[n])]
        yield Planted("faults beyond a size", late.name, file, chosen)
    for stem, parts in KINDS.items():
        file = HERE.parent / "public_kinds" / f"{stem}.py"
        text = file.read_text("utf-8").splitlines()
        chosen = [n for n, x in enumerate(text, 1) if any(p in x for p in parts)]
        yield Planted("kinds of public threads", "faulty", file, chosen)


def measured(kernel: Planted, seconds: float, jobs: int) -> dict[str, Any]:
    """Return what a search of a kernel names, ready to be kept."""
    options = argparse.Namespace(device="interpret", jobs=jobs)
    began = time.monotonic()
    target = f"{kernel.file}::{kernel.name}"
    made = searched([target], seconds, options, seed=1, first=True)[kernel.name]
    row: dict[str, Any] = {"key": kernel.key, "set": kernel.set}
    row["seconds"] = time.monotonic() - began
    finding = found(made)
    row["found"], line = finding is not None, (finding or {}).get("line")
    if line:
        row["line"], row["certain"] = line["line"], line["certain"]
        row["right"] = line["line"] in kernel.lines
        row["evidence"] = line["evidence"]
    return row


def kept(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, none where it is not there."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def measure(folder: Path, options: argparse.Namespace) -> None:
    """Measure what a folder does not hold yet, until the time is over."""
    until = time.monotonic() + options.seconds
    done = {row["key"] for row in kept(folder / "planted.jsonl")}
    left = [
        kernel
        for kernel in planted()
        if kernel.key not in done
        and any(fnmatch.fnmatch(kernel.key, glob) for glob in options.only)
    ]

    def one(kernel: Planted) -> None:
        if time.monotonic() < until:
            row = measured(kernel, options.search_seconds, options.search_jobs)
            print(row, file=sys.stderr, flush=True)
            with (folder / "planted.jsonl").open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(row)}\n")

    with ThreadPoolExecutor(max(options.jobs // options.search_jobs, 1)) as pool:
        list(pool.map(one, left))
    jobs = ("--jobs", str(options.jobs))
    commands = {"mutants": (*MUTANTS, *jobs), "repairs": (*REPAIRS, *jobs)}
    if options.wheels:
        commands["known"] = (*KNOWN, "--wheels", options.wheels, "--most", "1")
    for name, command in commands.items():
        keep = ["--keep", str(folder / f"{name}.jsonl")]
        while any(fnmatch.fnmatch(name, glob) for glob in options.only):
            seconds = until - time.monotonic()
            before = len(kept(folder / f"{name}.jsonl"))
            if seconds < options.search_seconds:
                return
            words = [] if name == "known" else ["--seconds", f"{seconds:.0f}"]
            subprocess.run(
                [sys.executable, "-m", *command, *keep, *words],
                stdout=subprocess.DEVNULL, check=False,
            )  # fmt: skip
            if name != "known" or len(kept(folder / f"{name}.jsonl")) == before:
                break


# The table.


def latest(rows: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Return of rows with the same name the last."""
    return list({row[key]: row for row in rows}.values())


def line_of(name: str, rows: list[Mapping[str, Any]], measured: int) -> str:
    """Return a line of the table.

    Args:
        name: of the set.
        rows: of what has a finding: `lines`, of which each is right or not, `certain`,
            `seconds`.
        measured: how many there are in all.
    """

    def share(number: int) -> str:
        return f"{100 * number / len(rows):.0f}" if rows else "–"

    first = sum(any(row["lines"][:1]) for row in rows)
    three = sum(any(row["lines"][:3]) for row in rows)
    sure = [row for row in rows if row["certain"]]
    wrong = sum(not any(row["lines"][:1]) for row in sure)
    seconds = statistics.median([row["seconds"] for row in rows] or [0.0])
    several = any(len(row["lines"]) > 1 for row in rows)
    cells = (
        name, measured, len(rows), sum(bool(row["lines"]) for row in rows),
        share(first), share(three) if several else "–", share(len(sure)), wrong,
        f"{seconds:.1f}",
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def table(folder: Path) -> tuple[str, bool]:
    """Return the table of what a folder holds, and whether anything is wrong."""
    lines = [f"| {' | '.join(HEADS)} |", f"|{'---|' * len(HEADS)}"]
    every = latest(kept(folder / "mutants.jsonl"), "id")
    mutants = [Row(**row) for row in every if len(row) > 1]
    cells: list[Mapping[str, Any]] = [
        {"lines": [n == row.truth for n in row.lines], "certain": row.certain,
         "seconds": row.seconds}
        for row in mutants
    ]  # fmt: skip
    is_bad = any(map(is_wrong, mutants))
    lines.append(line_of("mutants", cells, len(every)))
    known = [
        {**row, "set": "known faults of libraries", "found": row["finding"] != "none"}
        for row in latest(kept(folder / "known.jsonl"), "entry")
        if row["finding"] != "a binding error"
    ]
    rows = [*latest(kept(folder / "planted.jsonl"), "key"), *known]
    for name in dict.fromkeys(row["set"] for row in rows):
        of_set = [row for row in rows if row["set"] == name]
        cells = [
            {"lines": [row["right"]] if "line" in row else [],
             "certain": row.get("certain", False), "seconds": row["seconds"]}
            for row in of_set
            if row["found"]
        ]  # fmt: skip
        is_bad |= any(c["certain"] and not any(c["lines"]) for c in cells)
        lines.append(line_of(name, cells, len(of_set)))
    if mutants:
        plain = sum(row.accessed == row.truth for row in mutants) / len(mutants)
        run = statistics.median(row.run for row in mutants)
        lines += ["", f"Without it: the access of a memory finding is the mutated line "
                  f"in {100 * plain:.0f} % of the mutants;"]  # fmt: skip
        lines += [f"of the others a reader has the {run:.0f} lines (median) that run."]
    repairs = [Row(**r) for r in latest(kept(folder / "repairs.jsonl"), "id")
               if len(r) > 1]  # fmt: skip
    if repairs:
        refuted = sum(len(row.refuted) for row in repairs)
        is_bad |= refuted > 0
        lines += ["", "| mutants with a finding | changes past gates 1 and 2 | past all"
                  " gates | mutants repaired | the original again | searched ten times "
                  "as long | wrong patches |", f"|{'---|' * 7}"]  # fmt: skip
        mended = sum(row.accepted > 0 for row in repairs)
        numbers = (
            len(repairs), sum(r.patches for r in repairs),
            sum(r.accepted for r in repairs),
            f"{mended} ({100 * mended / len(repairs):.0f} %)",
            sum(row.restored > 0 for row in repairs),
            sum(row.searched for row in repairs), refuted,
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, numbers))} |")
    return "\n".join(lines), is_bad


def main() -> int:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--keep", type=Path, required=True, metavar="FOLDER", help="rows of all calls")
    add("--jobs", type=int, default=2, help="processors")
    add("--seconds", type=float, default=0.0, help="of this call; 0: the table alone")
    add("--search-seconds", type=float, default=30.0, help="of each planted fault")
    add("--search-jobs", type=int, default=1, help="of kfuzz, of each")
    add("--only", nargs="+", default=["*"], metavar="GLOB", help="mutants, repairs, "
        "known, or kernels as the rows name them")  # fmt: skip
    add("--wheels", help="folder of installed wheels, for known faults")
    add("--write", action="store_true", help="put the table on the page")
    options = parser.parse_args()
    options.keep.mkdir(parents=True, exist_ok=True)
    measure(options.keep, options)
    made, is_bad = table(options.keep)
    print(made)
    if options.write:
        text = PAGE.read_text("utf-8")
        before, after = text.partition(BEGIN)[0], text.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n\n{made}\n\n{END}{after}", encoding="utf-8")
    return int(is_bad)


if __name__ == "__main__":
    raise SystemExit(main())
