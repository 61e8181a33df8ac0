"""Kernels of released libraries, searched as users search them: `kfuzz run`, timed.

    python -m tests.benchmarks.real.run --device cuda --seconds 60 [--together]

One row for each kernel: when its first case was judged, counted from the command, how
many cases and structures followed, where the processor time went, what was found. What
a run says of itself is taken from its JSON; the rest is seen from outside, alike for
every version of kfuzz (`watch/sitecustomize.py`), so that `--tree` compares one with
another.
"""

import argparse
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[2]
BINDINGS: Final = ("liger.py", "fla_core.py")
# A run keeps its time to within 5 % or 10 s; start and end come on top.
GRACE_SECONDS: Final = 240.0
# Of processor time; "other" is the rest of what children do.
PHASES: Final = (
    "command", "preload", "import", "compile", "call", "values", "oracle", "other",
)  # fmt: skip
_SEED: Final = "1"


@dataclass(frozen=True)
class Measured:
    """What one command did.

    Attributes:
        kernel: its name; "together" where the command searched all.
        first: seconds from the command to the first judged case; None without one.
        seconds: what the command took.
        cases: cases, by kernel.
        structures: different shapes, strides, dtypes and scalars.
        findings: contracts broken, each with how often.
        messages: what was found, in words.
        processor: seconds of processor time by phase.
        places: the functions with most of what is "other", with their seconds.
        reducing: seconds in which findings were confirmed and reduced.
        error: why there is no more; "" if all went well.
    """

    kernel: str
    first: float | None = None
    seconds: float = 0.0
    cases: dict[str, int] = field(default_factory=dict)
    structures: dict[str, int] = field(default_factory=dict)
    findings: dict[str, dict[str, int]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    processor: dict[str, float] = field(default_factory=dict)
    places: dict[str, float] = field(default_factory=dict)
    reducing: float = 0.0
    error: str = ""


def main() -> None:
    """Measure what the command line asks for and print the tables."""
    options = _options()
    names = kernels(options.kernels)
    if not names:
        sys.exit("no kernel has such a name")
    measured: list[Measured] = []
    if not options.only_together:
        with ThreadPoolExecutor(options.at_once) as pool:
            for one in pool.map(lambda name: _measure([name], options), names):
                print(f"{one.kernel}: {one.error or one.cases}", file=sys.stderr)
                measured.append(one)
        print(table(measured))
    if options.together or options.only_together:
        together = _measure(names, options)
        measured.append(together)
        print(table_of_all(together))
    if options.json:
        text = json.dumps([asdict(one) for one in measured], indent=1)
        Path(options.json).write_text(text + "\n")


def kernels(globs: list[str]) -> list[str]:
    """Return the node ids of the kernels bound here whose names match, in order.

    They are read off the text: the libraries need not be importable in this process.
    """
    found = []
    for file in BINDINGS:
        text = (HERE / file).read_text()
        bound = re.findall(r'name="(\w+)"|\(\s*liger\.(liger_\w+)\s*\)', text)
        for name in (named or own for named, own in bound):
            if any(fnmatch.fnmatch(name, glob) for glob in globs):
                found.append(f"{HERE / file}::{name}")
    return found


def table(measured: list[Measured]) -> str:
    """Return a row for each kernel that was searched alone."""
    heads = ["kernel", "first case, s", "cases", "structures", "findings"]
    heads += ["processor, s", *(f"{phase} %" for phase in PHASES), "reducing, s"]
    rows = [heads, ["---"] * len(heads)]
    for one in measured:
        name = one.kernel
        if one.error:
            rows.append([name, one.error.replace("|", "/")] + [""] * (len(heads) - 2))
            continue
        row = [name, _number(one.first), str(sum(one.cases.values()))]
        row += [_sum(one.structures), _found(one.findings), *_shares(one.processor)]
        rows.append([*row, f"{one.reducing:.1f}"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def table_of_all(one: Measured) -> str:
    """Return a row for each kernel of a command that searched all of them."""
    rows = [["kernel", "cases", "structures", "findings"], ["---"] * 4]
    for name, cases in one.cases.items():
        found = {name: one.findings.get(name, {})}
        structures = str(one.structures.get(name, "–"))
        rows.append([name, str(cases), structures, _found(found)])
    shares = zip(("processor, s", *PHASES), _shares(one.processor), strict=True)
    told = ", ".join(f"{name} {share}" for name, share in shares)
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines += ["", f"First case after {_number(one.first)} s; {told} (%); {one.error}"]
    return "\n".join(lines) + "\n"


def _measure(nodes: list[str], options: argparse.Namespace) -> Measured:
    """Run one command on some kernels and return what came of it."""
    name = nodes[0].rpartition("::")[2] if len(nodes) == 1 else "together"
    seconds = options.seconds if len(nodes) == 1 else options.together_seconds
    with tempfile.TemporaryDirectory(prefix="kfuzz-real-") as folder:
        place = Path(folder)
        watch = place / "watch"
        watch.mkdir()
        shutil.copy(HERE / "watch" / "sitecustomize.py", watch)
        path = [str(watch), str(Path(options.tree).resolve())]
        path += filter(None, [os.environ.get("PYTHONPATH")])
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path),
            # Nothing that an earlier run has built is there already.
            # Fresh, but for one that is named: bytecode is kept from run to run.
            "KFUZZ_CACHE": os.environ.get("KFUZZ_CACHE", str(place / "cache")),
            "TRITON_CACHE_DIR": str(place / "triton"),
        }
        command = [sys.executable, "-m", "kfuzz", "run", *nodes]
        command += ["--device", options.device, "--max-time", f"{seconds:g}s"]
        command += ["--seed", _SEED, "--format", "json", "--quiet"]
        command += ["--corpus", str(place / "corpus")]
        began, since = time.time(), time.monotonic()
        try:
            done = subprocess.run(
                command, cwd=place, env=environment, capture_output=True, text=True,
                timeout=seconds + GRACE_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Measured(name, error=f"still there after {seconds:g} s and more")
        took = time.monotonic() - since
        seen = [json.loads(p.read_text()) for p in watch.glob("*.json")]
        try:
            said = json.loads(done.stdout)
        except ValueError:
            lines = done.stderr.strip().splitlines() or ["no output"]
            return Measured(name, seconds=took, error=lines[-1][:200])
        return _folded(name, said, seen, began, took)


def _folded(
    name: str,
    said: dict[str, Any],
    seen: list[dict[str, Any]],
    began: float,
    took: float,
) -> Measured:
    """Return what a run's document and what was seen of its processes come to."""
    processor: Counter[str] = Counter()
    places: Counter[str] = Counter()
    for process in seen:
        processor.update(process["seconds"])
        places.update(process.get("places", {}))
    # Of the processes of the command, the one that searches has seen cases.
    command = max(
        seen, key=lambda p: ("first" in p, p.get("reducing", 0.0)), default={}
    )
    by_name = {k["kernel"].rpartition("::")[2]: k for k in said["kernels"]}
    structures = {n: k["structures"] for n, k in by_name.items() if "structures" in k}
    if len(by_name) == 1 and "structures" in command:
        structures = dict.fromkeys(by_name, command["structures"])
    return Measured(
        name,
        first=command["first"] - began if "first" in command else None,
        seconds=took,
        cases={n: k["cases"] or 0 for n, k in by_name.items()},
        structures=structures,
        findings={
            n: dict(Counter(f["contract"] for f in k["findings"]))
            for n, k in by_name.items()
        },
        messages=[
            f"{n}: {f['contract']} {f['message']}"
            for n, k in by_name.items()
            for f in k["findings"]
        ],
        processor=dict(processor),
        places=dict(places.most_common(12)),
        reducing=command.get("reducing", 0.0),
    )


def _shares(processor: dict[str, float]) -> list[str]:
    total = sum(processor.values())
    shares = [100 * processor.get(phase, 0.0) / (total or 1) for phase in PHASES]
    return [f"{total:.1f}", *(f"{share:.0f}" for share in shares)]


def _found(findings: dict[str, dict[str, int]]) -> str:
    counts: Counter[str] = Counter()
    for each in findings.values():
        counts.update(each)
    told = (f"{n} x {name}" if n > 1 else name for name, n in counts.items())
    return ", ".join(told) or "0"


def _sum(counts: dict[str, int]) -> str:
    return str(sum(counts.values())) if counts else "–"


def _number(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.1f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--device", default="interpret", choices=("cuda", "interpret", "cpu"))
    add("--seconds", type=float, default=60.0, help="for each kernel alone")
    add("--kernels", nargs="+", default=["*"], metavar="GLOB")
    add("--at-once", type=int, default=1, help="kernels searched side by side")
    add("--together", action="store_true", help="then all in one command")
    add("--only-together", action="store_true")
    add("--together-seconds", type=float, default=300.0)
    add("--tree", default=str(ROOT), help="folder of the kfuzz to measure")
    add("--json", metavar="FILE", help="write all that was measured")
    return parser.parse_args()


if __name__ == "__main__":
    main()
