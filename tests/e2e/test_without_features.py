"""The core where `kfuzz/features` is not there: what features add is gone, no more."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITHOUT_INSTALLATION = """
import sys

sys.meta_path[:] = [
    finder for finder in sys.meta_path
    if "__editable__" not in getattr(finder, "__module__", "")
]
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the checkout whose features are hidden."""
    root = tmp_path_factory.mktemp("bare")
    hidden = shutil.ignore_patterns("features", "__pycache__")
    for name in ("kfuzz", "contracts", "strategies", "tests", "corpus"):
        shutil.copytree(ROOT / name, root / name, symlinks=True, ignore=hidden)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, root / name)
    # An editable installation finds what a checkout before it lacks.
    (root / "sitecustomize.py").write_text(WITHOUT_INSTALLATION)
    return root


def python(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a checkout, of which it imports kfuzz."""
    environment = os.environ | {"PYTHONPATH": str(root)}
    return subprocess.run(
        [sys.executable, *words], cwd=root, env=environment, capture_output=True,
        text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_the_example_of_the_readme_is_searched(bare: Path) -> None:
    target = "contracts/witnesses/softmax.py::softmax_tail_zero"
    words = ["--max-cases", "100", "--max-findings", "1", "--seed", "7"]
    done = python(bare, "-m", "kfuzz", "run", target, *words)
    assert done.returncode == 1, done.stderr
    assert "kfuzz replay softmax_tail_zero-C-CMP-03-186361e2" in done.stdout


def test_what_features_add_is_absent(bare: Path) -> None:
    shown = python(bare, "-m", "kfuzz", "--help").stdout
    verbs = {line.split()[0] for line in shown.splitlines() if line.startswith("  ")}
    assert {"run", "check", "replay", "corpus"} <= verbs
    assert not {"judge", "prove", "grade", "probe", "observe", "record"} & verbs
    target = "contracts/witnesses/softmax.py"
    done = python(bare, "-m", "kfuzz", "run", target, "--engine", "atheris")
    assert done.returncode == 2
    assert "kfuzz.features" in done.stderr


@pytest.mark.slow
def test_the_tests_of_the_core_pass(bare: Path) -> None:
    words = ["-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"]
    apart = ["test_packaging.py", "cli/test_docs.py", "benchmarks", "gpu"]
    ignored = [f"--ignore=tests/{name}" for name in apart]
    done = python(bare, *words, *ignored, "tests")
    assert done.returncode == 0, done.stdout[-3000:]
