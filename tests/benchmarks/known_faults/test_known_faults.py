"""The table of known faults is complete, and the rule of detection holds."""

import subprocess
import sys

import pytest

from tests.benchmarks.known_faults import run
from tests.benchmarks.known_faults.decide import Found, Outcome, Ran, decide
from tests.benchmarks.known_faults.entry import (
    BINDINGS,
    Entry,
    Fault,
)
from tests.benchmarks.known_faults.table import ENTRIES

ENTRY = Entry(
    "example",
    "example-kernels",
    "0.1.0",
    "0.2.0",
    "example.softmax",
    "liger_norms.py::layer_norm",
    ("https://github.com/example/kernels/pull/1",),
    Fault.TAIL,
    "A sum takes in padding.",
)
TAIL = Found("C-CMP-03", "value", "y", "y[0] is wrong", 3)
READ = Found("K-MEM-01", "load", "x", "read past the end", 2)


def test_every_entry_is_complete() -> None:
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)
    for entry in ENTRIES:
        file, _, kernel = entry.binding.partition("::")
        assert kernel.partition(".")[0] in (BINDINGS / file).read_text(), entry.name
        assert entry.threads, entry.name
        assert all(further.argument for further in entry.further), entry.name


@pytest.mark.slow
def test_bindings_import_no_library_before_a_kernel_is_called() -> None:
    files = sorted(p.stem for p in BINDINGS.glob("*.py") if p.stem != "__init__")
    code = "\n".join(
        [
            "import importlib, sys",
            f"for file in {files}:",
            "    importlib.import_module("
            "f'tests.benchmarks.known_faults.bindings.{file}')",
            "libraries = {m.partition('.')[0] for m in sys.modules}",
            "print(sorted(libraries & {'fla', 'liger_kernel', 'einops'}))",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=run.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_a_finding_that_the_fixed_version_lacks_detects() -> None:
    decided = decide(ENTRY, Ran((TAIL, READ), 20), Ran((READ,), 90))
    assert decided.outcome is Outcome.DETECTED
    assert decided.shown == (TAIL,)
    assert decided.unexamined == (READ,)


def test_the_same_finding_on_both_versions_detects_nothing() -> None:
    decided = decide(ENTRY, Ran((READ,), 20), Ran((READ,), 90))
    assert decided.outcome is Outcome.MISSED


@pytest.mark.parametrize(
    ("faulty", "fixed", "side"),
    [
        (Ran(error="no module"), Ran((), 90), "faulty"),
        (Ran((TAIL,), 20), Ran(error="no module"), "fixed"),
        (Ran((TAIL,), 20), Ran((), 0), "fixed"),
        (Ran((), 0), Ran((), 90), "faulty"),
    ],
)
def test_silence_of_a_run_without_cases_proves_nothing(
    faulty: Ran, fixed: Ran, side: str
) -> None:
    decided = decide(ENTRY, faulty, fixed)
    assert decided.outcome is Outcome.NOT_RUN
    assert decided.reason.startswith(side)
