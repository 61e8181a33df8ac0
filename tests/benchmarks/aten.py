"""Torch's own CPU kernels, by the names of their overloads: what is decided and found.

    python -m tests.benchmarks.aten                      # 300 cases of every overload
    python -m tests.benchmarks.aten --cases 50 --only 'add*' 'softmax.int'
    python -m tests.benchmarks.aten --writing            # in place, and with `out`

Judges batches of ten items, each structure drawn as a search draws it, in processes
that take overloads in turn; what an item shows is judged again as a case of its own.
Prints a table: overload, cases, structures, cases in which a value was decided, cases
outside the domain of torch's own overload, rejected ones, failing ones, and findings.
Exits with 1 on a finding that `aten_listed.py` does not list with its reason, or where
no value was decided.
"""

import argparse
import fnmatch
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

CASES: Final = 300
MODULE: Final = "tests.benchmarks.aten"
ROOT: Final = Path(__file__).resolve().parents[2]
COLUMNS: Final = (
    "cases", "structures", "decided", "outside", "rejected", "failing"
)  # fmt: skip


def searched(
    name: str, cases: int, given: Callable[..., Any] | None = None
) -> dict[str, Any]:
    """Judge cases of one overload in this process.

    Args:
        name: of the overload.
        cases: how many.
        given: the implementation; torch's own by default.

    Returns:
        Counts, findings (class, kind, output and data type with a message) and errors.
    """
    from kfuzz.contracts.aten.making import overload
    from tests.benchmarks.aten_listed import claims_of
    from tests.helpers.batched import tallied
    from tests.helpers.overloads import bound

    began = time.monotonic()
    kernel = bound(name, given or overload(name), name=name, **claims_of(name))
    made = tallied(kernel, cases, seconds=600)
    seconds = round(time.monotonic() - began, 1)
    return {
        "name": name, **made.counts, "findings": made.findings,
        "errors": made.errors, "seconds": seconds,
    }  # fmt: skip


def _row(made: dict[str, Any]) -> str:
    text = " | ".join(str(made.get(k, 0)) for k in COLUMNS)
    found = "; ".join(made["findings"]) or "; ".join(made["errors"].values()) or "-"
    return f"| {made['name']} | {text} | {found} |"


def _slice(names: Sequence[str], cases: int) -> None:
    """Judge overloads in this process; print a line of JSON for each."""
    import torch

    torch.set_num_threads(1)
    for name in names:
        try:
            made = searched(name, cases)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            made = {"name": name, "findings": {}, "errors": {"error": why}}
        print(json.dumps(made), flush=True)


def _in_processes(
    names: list[str], cases: int, done: Callable[[dict[str, Any]], None]
) -> None:
    """Judge overloads in a process, and the rest in another one where it dies."""
    left = list(names)
    while left:
        command = [
            sys.executable, "-m", MODULE, "--cases", str(cases), "--slice",
            " ".join(left),
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert process.stdout is not None
        for line in process.stdout:
            result = json.loads(line)
            left.remove(result["name"])
            done(result)
        if process.wait() and left:
            died = {f"K-LIV-01 crash {process.returncode}": ""}
            done({"name": left.pop(0), "findings": died, "errors": {}})


def writing() -> Iterator[str]:
    """Yield the in-place overloads and those with `out` of the table's rows."""
    from kfuzz.contracts.aten.making import base_of, find, overloads
    from kfuzz.contracts.aten.rows import ROWS
    from kfuzz.core.errors import BindingError

    for base in sorted({name.partition(".")[0] for name in ROWS}):
        for name in (n for op in (base, f"{base}_") for n in overloads(op)):
            with suppress(BindingError):
                if base_of(name) in ROWS and find(name):
                    yield name


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--only", nargs="*", default=["*"])
    parser.add_argument("--writing", action="store_true", help="what writes arguments")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", help="write counts and messages to this file")
    parser.add_argument("--verbose", action="store_true", help="print messages too")
    parser.add_argument("--slice", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.slice:
        _slice(options.slice.split(), options.cases)
        return 0
    from kfuzz.contracts.aten.making import names
    from tests.benchmarks.aten_listed import unlisted

    every_one = writing() if options.writing else names()
    globs = options.only
    wanted = [n for n in every_one if any(fnmatch.fnmatchcase(n, g) for g in globs)]
    print(f"| overload | {' | '.join(COLUMNS)} | findings |")
    print("|---" * (len(COLUMNS) + 2) + "|")
    every: list[dict[str, Any]] = []

    def done(result: dict[str, Any]) -> None:
        every.append(result)
        print(_row(result), flush=True)
        if options.verbose:
            for key, text in result["findings"].items():
                print(f"    {key}: {text}")
        if options.json:
            Path(options.json).write_text(json.dumps(every, indent=1))

    parts = [wanted[i :: options.jobs] for i in range(options.jobs)]
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda p: _in_processes(p, options.cases, done), parts))
    bad = {r["name"]: unlisted(r["name"], r["findings"]) for r in every}
    empty = [r["name"] for r in every if not r.get("decided")]
    total = sum(r.get("cases", 0) for r in every)
    decided = sum(r.get("decided", 0) for r in every)
    print(f"{len(every)} overloads, {total} cases, a value decided in {decided}")
    for name, keys in bad.items():
        for key in keys:
            print(f"not listed: {name}: {key}")
    if empty:
        print(f"nothing decided: {', '.join(empty)}")
    return int(bool(empty) or any(bad.values()))


if __name__ == "__main__":
    sys.exit(main())
