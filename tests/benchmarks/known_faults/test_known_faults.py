"""The table of known faults is complete."""

import subprocess
import sys

import pytest

from tests.benchmarks.known_faults import run
from tests.benchmarks.known_faults.entry import BINDINGS


def test_every_entry_is_complete() -> None:
    assert len({entry.name for entry in run.ENTRIES}) == len(run.ENTRIES)
    for entry in run.ENTRIES:
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
