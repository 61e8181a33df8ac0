"""Kernels of released libraries, searched as users search them: `kfuzz run`.

    python -m tests.benchmarks.real.run --device cuda --seconds 60
    python -m tests.benchmarks.real.run --device cuda --seconds 300 --together

One row for each kernel: start-up, cases and structures, and what was found. Each is
searched by a command of its own, or all by one. Nothing is cached beforehand.
"""

import argparse
import fnmatch
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[2]
BINDINGS: Final = (
    "../../hunt/packages/liger_kernel.py", "../../hunt/packages/fla_core.py",
    "gems.py", "conch_kernels.py", "unsloth_kernels.py", "flashinfer_triton.py",
)  # fmt: skip
# A run keeps its time to within 5 % or 10 s; start and end come on top.
GRACE_SECONDS: Final = 240.0
HEADS: Final = ("kernel", "start-up, s", "cases", "structures", "findings")


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
                found.append(f"{(HERE / file).resolve()}::{name}")
    return found


def searched(nodes: list[str], device: str, seconds: float) -> dict[str, Any] | str:
    """Return the document of one command, or why there is none."""
    with tempfile.TemporaryDirectory(prefix="kfuzz-real-") as folder:
        place = Path(folder)
        path = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path),
            "KFUZZ_CACHE": str(place / "cache"),
            "TRITON_CACHE_DIR": str(place / "triton"),
        }
        command = [sys.executable, "-m", "kfuzz", "run", *nodes, "--device", device]
        command += ["--max-time", f"{seconds:g}s", "--seed", "1", "--quiet"]
        command += ["--format", "json", "--corpus", str(place / "corpus")]
        try:
            done = subprocess.run(
                command, cwd=place, env=environment, capture_output=True, text=True,
                timeout=seconds + GRACE_SECONDS,
            )  # fmt: skip
            made: dict[str, Any] = json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            return f"still there after {seconds:g} s and more"
        except ValueError:
            return (done.stderr.strip().splitlines() or ["no output"])[-1][:200]
        return made


def rows(said: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kernel, then what was found, in words."""
    for kernel in said["kernels"]:
        name = kernel["kernel"].rpartition("::")[2]
        counts = Counter(f["contract"] for f in kernel["findings"])
        found = ", ".join(f"{n} x {c}" if n > 1 else c for c, n in counts.items())
        structures = str(kernel.get("structures", "–"))
        start = f"{said.get('startup_s', 0.0):.1f}"
        yield name, start, str(kernel["cases"] or 0), structures, found or "0"
        for finding in kernel["findings"]:
            print(
                f"{name}: {finding['contract']} {finding['message']}", file=sys.stderr
            )


def main() -> None:
    """Search what the command line asks for and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--device", default="interpret", choices=("cuda", "interpret", "cpu"))
    add("--seconds", type=float, default=60.0, help="of each command")
    add("--kernels", nargs="+", default=["*"], metavar="GLOB")
    add("--at-once", type=int, default=1, help="kernels searched side by side")
    add("--together", action="store_true", help="all in one command")
    options = parser.parse_args()
    nodes = kernels(options.kernels)
    if not nodes:
        sys.exit("no kernel has such a name")
    commands = [nodes] if options.together else [[node] for node in nodes]
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    with ThreadPoolExecutor(options.at_once) as pool:
        documents = pool.map(
            lambda each: searched(each, options.device, options.seconds), commands
        )
        for each, said in zip(commands, documents, strict=True):
            if isinstance(said, str):
                print(f"| {each[0].rpartition('::')[2]} | {said} |", flush=True)
                continue
            for row in rows(said):
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
