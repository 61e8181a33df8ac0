"""Languages: does a correct kernel pass in each, and is a planted fault found?

    python -m tests.benchmarks.languages
    python -m tests.benchmarks.languages --device cuda

Each file binds `correct` and `faulty`. A language whose package is absent is skipped by
name. It fails where `correct` has a finding or nothing of it was judged, or `faulty`
has none that is confirmed.
"""

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.late_faults.__main__ import found, searched

HERE: Final = Path(__file__).parent
HEADS: Final = (
    "language", "version", "device", "correct: cases, findings",
    "faulty: cases, s to the first", "contract", "elements",
)  # fmt: skip


@dataclass(frozen=True)
class Language:
    """A way to run kernels of a language.

    Attributes:
        file: the file of its kernels.
        package: the distribution that it needs.
        devices: where it runs, as kfuzz calls them: of these the one asked for.
        environment: what has to be set.
    """

    file: str
    package: str
    devices: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


LANGUAGES: Final = {
    "Helion": Language("helion", "helion", ("interpret", "cuda")),
    "Helion, eager": Language(
        "helion_eager", "helion", ("cpu",), {"HELION_INTERPRET": "1"}
    ),
    "Gluon": Language("gluon", "triton", ("cuda",)),
    "TileLang": Language("tilelang", "tilelang", ("interpret", "cuda")),
    "CuTe DSL": Language("cute", "nvidia-cutlass-dsl", ("cuda",)),
    "Numba": Language(
        "numba", "numba", ("interpret",), {"NUMBA_ENABLE_CUDASIM": "1"}
    ),
    "Warp": Language("warp", "warp-lang", ("interpret", "cuda")),
    "Pallas": Language("pallas", "jax", ("interpret",)),
    "CuPy": Language("cupy", "cupy-cuda12x", ("cuda",)),
}  # fmt: skip


def row(
    language: Language, device: str, options: argparse.Namespace
) -> tuple[list[str], bool]:
    """Search both kernels; return the cells from the device on, and if all is well."""

    def search(name: str, *, first: bool) -> dict[str, Any]:
        target = f"{HERE / language.file}_kernels.py::{name}"
        asked = argparse.Namespace(device=device, jobs=1)
        kernels = searched([target], options.seconds, asked, seed=11, first=first)
        return kernels[name]

    before = dict(os.environ)
    os.environ.update(language.environment)
    try:
        correct, faulty = search("correct", first=False), search("faulty", first=True)
    finally:
        for name in language.environment:
            os.environ.pop(name)
        os.environ.update(before)
    finding = found(faulty)
    cells = [device, f"{correct['decided']}, {len(correct['findings'])}"]
    cells += [f"{faulty['cases']}, {faulty['after']:.1f}"]
    cells += [finding["contract"], str(finding["input_elements"])] if finding else []
    well = bool(finding and correct["decided"] and not correct["findings"])
    return cells, well


def main() -> int:
    """Search what the command line asks for and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--device", choices=("host", "cuda"), default="host")
    add("--seconds", type=float, default=30.0, help="of each search")
    add("--only", nargs="+", choices=LANGUAGES, default=[*LANGUAGES], metavar="NAME")
    options = parser.parse_args()
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}", flush=True)
    wrong = False
    on_gpu = options.device == "cuda"
    for name in options.only:
        language = LANGUAGES[name]
        fit = [d for d in language.devices if (d == "cuda") == on_gpu]
        try:
            there = version(language.package)
        except PackageNotFoundError:
            print(f"| {name} | skipped: {language.package} is not installed |")
            continue
        if not fit:
            print(f"| {name} | skipped: runs on {', '.join(language.devices)} alone |")
            continue
        cells, well = row(language, fit[0], options)
        wrong |= not well
        print(f"| {' | '.join([name, there, *cells])} |", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
