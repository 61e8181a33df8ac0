"""Known faults of released kernels: which does `kfuzz run` find?

    python -m tests.benchmarks.known_faults.run --device interpret --seconds 60

For each entry of the table both versions are installed into folders of their own and
searched with the same budget and seed. The fixed version is searched first, to the end
of its budget. The search of the faulty version may stop at its first finding; it goes
on where the fixed version has that finding too.
"""

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.known_faults.bindings.released import FOLDER, FUNCTION
from tests.benchmarks.known_faults.decide import (
    Decided,
    Found,
    Outcome,
    Ran,
    decide,
    tally,
)
from tests.benchmarks.known_faults.entry import BINDINGS, Entry, Fault
from tests.benchmarks.known_faults.table import ENTRIES
from tests.hunt import wheels

ROOT: Final = Path(__file__).parents[3]
# A run keeps its time to within 5 % or 10 s; start and end come on top.
GRACE_SECONDS: Final = 300.0
_HEADS: Final = (
    "entry", "class", "versions", "outcome", "finding", "first, s", "cases",
    "elements", "cases, fixed", "on the fixed version",
)  # fmt: skip

Row = tuple[Entry, Decided, Ran, Ran]


def main() -> None:
    """Measure what the command line asks for and print the table."""
    options = _options()
    chosen = [
        e for e in ENTRIES if any(fnmatch.fnmatch(e.name, p) for p in options.only)
    ]
    if options.device == "interpret":
        chosen = [e for e in chosen if not e.needs_gpu]
    if not chosen:
        sys.exit("no entry has such a name, or all need a GPU")
    rows: list[Row] = []
    with ThreadPoolExecutor(options.at_once) as pool:
        asked = [pool.submit(_measure, entry, options) for entry in chosen]
        for made in as_completed(asked):
            rows.append(row := made.result())
            print(_line(row), file=sys.stderr, flush=True)
            if options.json:
                _save(Path(options.json), rows)
    rows.sort(key=lambda row: ENTRIES.index(row[0]))
    print(table(rows))
    print(tally(decided for _, decided, _, _ in rows))


def table(rows: list[Row]) -> str:
    """Return the rows as a table of Markdown."""
    cells = [list(_HEADS), ["---"] * len(_HEADS), *(_cells(row) for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells) + "\n"


def compare(
    entry: Entry, search: Callable[[str, int | None], Ran]
) -> tuple[Decided, Ran, Ran]:
    """Search both versions of an entry and decide.

    Args:
        entry: the entry.
        search: searches a version; stops after so many findings, None for no limit.
    """
    fixed = search(entry.fixed, None)
    faulty = search(entry.faulty, 1)
    decided = decide(entry, faulty, fixed)
    if decided.outcome is Outcome.MISSED and faulty.findings:
        faulty = search(entry.faulty, None)
        decided = decide(entry, faulty, fixed)
    return decided, faulty, fixed


def _measure(entry: Entry, options: argparse.Namespace) -> Row:
    def search(version: str, limit: int | None) -> Ran:
        return searched(entry, version, limit, options)

    return (entry, *compare(entry, search))


def searched(
    entry: Entry, version: str, limit: int | None, options: argparse.Namespace
) -> Ran:
    """Install a version and search it."""
    folder = Path(options.wheels)
    try:
        paths = [
            wheels.install(folder, entry.package_of(version), version),
            wheels.shared(folder),
        ]
    except wheels.WheelError as error:
        return Ran(error=str(error))
    return _search(entry, paths, limit, options)


def _search(
    entry: Entry, paths: list[Path], limit: int | None, options: argparse.Namespace
) -> Ran:
    """Run `kfuzz run` on one version."""
    with tempfile.TemporaryDirectory(prefix="kfuzz-known-") as folder:
        place = Path(folder)
        path = [*map(str, paths), str(ROOT)]
        path += filter(None, [os.environ.get("PYTHONPATH")])
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path),
            FUNCTION: entry.function,
            FOLDER: str(paths[0]),
            "TRITON_CACHE_DIR": str(place / "triton"),
            # What a library hands to torch.compile runs as it is written.
            "TORCHDYNAMO_DISABLE": "1",
        }
        command = [sys.executable, "-m", "kfuzz", "run", f"{BINDINGS}/{entry.binding}"]
        command += ["--device", options.device, "--max-time", f"{options.seconds:g}s"]
        command += ["--seed", str(options.seed), "--format", "json", "--quiet"]
        command += ["--corpus", str(place / "corpus")]
        if entry.fault is Fault.INT32:
            command += ["--profile", "large"]  # 64-bit indexing
        command += ["--max-findings", str(limit)] if limit else []
        command += ["--max-cases", str(options.cases)] if options.cases else []
        began = time.monotonic()
        with (place / "out").open("wb") as out, (place / "err").open("wb") as err:
            process = subprocess.Popen(
                command, cwd=place, env=environment, stdout=out, stderr=err
            )
            first = None
            while process.poll() is None:
                took = time.monotonic() - began
                if first is None and _confirmed(place / "corpus"):
                    first = took
                if took > options.seconds + GRACE_SECONDS:
                    process.kill()
                    process.wait()
                    return Ran(error=f"still there after {took:.0f} s", seconds=took)
                time.sleep(0.5)
        took = time.monotonic() - began
        if first is None and _confirmed(place / "corpus"):
            first = took
        try:
            said = json.loads((place / "out").read_text())
        except ValueError:
            text = (place / "err").read_text(errors="replace").strip().splitlines()
            return Ran(error=(text or ["no output"])[-1][:200], seconds=took)
        return _read(said, place / "corpus", took, first)


def _read(
    said: dict[str, Any], corpus: Path, seconds: float, first: float | None
) -> Ran:
    """Return what a run's document and its corpus say."""
    signatures = {
        path.parent.name: _finding(path)["signature"] for path in _stored(corpus)
    }
    found = []
    for kernel in said["kernels"]:
        for one in kernel["findings"]:
            if one["state"] != "confirmed":
                continue
            signature = signatures.get(Path(one["path"]).name, {})
            found.append(
                Found(
                    one["contract"],
                    one["kind"],
                    signature.get("output") or "",
                    one["message"],
                    one["input_elements"] or 0,
                    one.get("line"),
                )
            )
    cases = sum(kernel["decided"] or 0 for kernel in said["kernels"])
    return Ran(tuple(found), cases, seconds, first)


def _stored(corpus: Path) -> list[Path]:
    return sorted(corpus.glob("*/*/finding.json"))


def _finding(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(path.read_text())
    return read


def _confirmed(corpus: Path) -> bool:
    for path in _stored(corpus):
        try:
            if _finding(path).get("state") == "confirmed":
                return True
        except (OSError, ValueError):  # being replaced
            continue
    return False


def _cells(row: Row) -> list[str]:
    entry, decided, faulty, fixed = row
    shown = ", ".join(f"{f.contract} {f.output}".strip() for f in decided.shown)
    smallest = min((f.elements for f in decided.shown), default=0)
    on_fixed = [
        f"{f.contract} {f.output} (to examine)".replace("  ", " ")
        for f in decided.unexamined
    ]
    on_fixed += [f"{f.contract} {f.output}: false alarm" for f in decided.false_alarms]
    examined = len(fixed.findings) - len(decided.unexamined) - len(decided.false_alarms)
    on_fixed += [f"{examined} further"] if examined else []
    return [
        entry.name,
        str(entry.fault),
        f"{entry.faulty} → {entry.fixed}",
        decided.outcome + (f": {decided.reason}" if decided.reason else ""),
        shown or "–",
        "–" if faulty.first is None or not shown else f"{faulty.first:.0f}",
        str(faulty.cases),
        str(smallest) if smallest else "–",
        str(fixed.cases),
        "; ".join(on_fixed).replace("|", "/") or "0",
    ]


def _line(row: Row) -> str:
    entry, decided, _faulty, _fixed = row
    told = [f.message for f in decided.shown] + [
        f"on the fixed version: {f.contract} {f.message}" for f in decided.unexamined
    ]
    return f"{entry.name}: {decided.outcome} {decided.reason} " + "; ".join(told)


def _save(path: Path, rows: list[Row]) -> None:
    said = [
        {
            "entry": entry.name,
            "decided": asdict(decided),
            "faulty": asdict(faulty),
            "fixed": asdict(fixed),
        }
        for entry, decided, faulty, fixed in rows
    ]
    path.write_text(json.dumps(said, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--device", default="interpret", choices=("cuda", "interpret"))
    add("--seconds", type=float, default=60.0, help="for each version of an entry")
    add("--cases", type=int, help="cases at most, where a machine is busy")
    add("--seed", type=int, default=1)
    add("--only", nargs="+", default=["*"], metavar="PATTERN", help="names of entries")
    add("--at-once", type=int, default=1, help="entries measured side by side")
    add("--wheels", default=str(wheels.cache()), help="folder of installed wheels")
    add("--json", metavar="FILE", help="write all that was measured")
    return parser.parse_args()


if __name__ == "__main__":
    main()
