"""Known faults of released kernels: is the line that is named one that the fix changed?

    python -m tests.benchmarks.known_faults.located --seconds 45 --wheels FOLDER

The faulty version of each entry that Triton's interpreter can show is searched, as
`run.py` does, up to its first finding, with its line. A line counts as right where the
file of the fixed version differs from it within two lines. *chance* is the share of the
file's lines of which that holds.
"""

import argparse
import difflib
import fnmatch
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.known_faults.entry import Entry, Fault
from tests.benchmarks.known_faults.run import searched
from tests.benchmarks.known_faults.table import ENTRIES
from tests.hunt import wheels

HEADS: Final = (
    "entry", "versions", "finding", "line", "", "in the fix", "chance, %", "seconds",
)  # fmt: skip
NEAR: Final = 2


def changed(faulty: str, fixed: str) -> set[int]:
    """Return the lines of a text that are near what another one has otherwise."""
    before, after = faulty.splitlines(), fixed.splitlines()
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    found: set[int] = set()
    for tag, first, last, _, _ in matcher.get_opcodes():
        if tag != "equal":
            found |= set(range(first + 1 - NEAR, max(last, first + 1) + NEAR + 1))
    return {line for line in found if 0 < line <= len(before)}


def measured(entry: Entry, options: argparse.Namespace) -> dict[str, Any]:
    """Return what came of an entry, ready to be printed."""
    began = time.monotonic()
    ran = searched(entry, entry.faulty, 1, options)
    made: dict[str, Any] = {"entry": entry.name, "seconds": time.monotonic() - began}
    made["versions"] = f"{entry.faulty} → {entry.fixed}"
    if not ran.findings:
        return made | {"finding": ran.error or "none"}
    [found, *_] = ran.findings
    made["finding"] = f"{found.contract} {found.output}".strip()
    if found.line is None:
        return made
    folder = Path(options.wheels)
    places = [
        wheels.install(folder, entry.package_of(version), version)
        for version in (entry.faulty, entry.fixed)
    ]
    file = Path(found.line["file"])
    made["line"] = f"{file.name}:{found.line['line']}"
    made["certain"] = found.line["certain"]
    made["evidence"] = found.line["evidence"]
    other = places[1] / file.relative_to(places[0].resolve())
    text = file.read_text("utf-8")
    lines = changed(text, other.read_text("utf-8") if other.is_file() else "")
    made["right"] = found.line["line"] in lines
    made["chance"] = 100 * len(lines) / max(len(text.splitlines()), 1)
    return made


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table of Markdown, and how many are right."""
    lines = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
    for row in rows:
        named = "line" in row
        cells = (
            row["entry"], row["versions"], row["finding"], row.get("line", "–"),
            ("certain" if row["certain"] else "probably") if named else "",
            ("yes" if row["right"] else "no") if named else "",
            f"{row['chance']:.0f}" if named else "", f"{row['seconds']:.0f}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    named_rows = [row for row in rows if "line" in row]
    right = sum(row["right"] for row in named_rows)
    wrong = [r["entry"] for r in named_rows if r["certain"] and not r["right"]]
    lines += ["", f"{len(rows)} entries, {len(named_rows)} with a line, {right} right."]
    lines += [f"Certain and not in the fix: {', '.join(wrong)}"] if wrong else []
    return "\n".join(lines)


def main() -> None:
    """Search, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--seconds", type=float, default=45.0, help="for each search")
    add("--seed", type=int, default=1)
    add("--only", nargs="+", default=["*"], metavar="PATTERN", help="names of entries")
    add("--wheels", default=str(wheels.cache()), help="folder of installed wheels")
    add("--keep", type=Path, help="rows of earlier calls, and of this")
    add("--most", type=int, help="entries measured by this call")
    options = parser.parse_args()
    options.device, options.cases = "interpret", None
    known: dict[str, dict[str, Any]] = {}
    if options.keep and options.keep.exists():
        lines = options.keep.read_text("utf-8").splitlines()
        known = {made["entry"]: made for made in map(json.loads, lines)}
    chosen = [
        entry
        for entry in ENTRIES
        if not entry.needs_gpu
        and entry.fault is not Fault.RAISES
        and any(fnmatch.fnmatch(entry.name, p) for p in options.only)
    ]
    for entry in [e for e in chosen if e.name not in known][: options.most]:
        made = known[entry.name] = measured(entry, options)
        print(made, file=sys.stderr, flush=True)
        if options.keep:
            with options.keep.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(made)}\n")
    print(table([known[e.name] for e in chosen if e.name in known]))


if __name__ == "__main__":
    main()
