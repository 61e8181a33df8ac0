"""Bytecode is kept where Python itself keeps none, and nowhere else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMPORTING = """
import sys
from kfuzz.execution.processes import forking
forking.keep_bytecode()
sys.path.insert(0, sys.argv[1])
import vessel
print(vessel.__cached__, vessel.READ)
"""
SOURCE = "import sys; READ = 'compiled'\n"


def imported(folder: Path, cache: Path, **environment: str) -> str:
    """Import a module of a folder in a fresh process; return where bytecode lies."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env |= {"PYTHONPATH": str(ROOT), "KFUZZ_CACHE": str(cache), **environment}
    command = [sys.executable, "-c", IMPORTING, str(folder)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    path, read = done.stdout.split()
    assert read == "compiled"
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "library"
    made.mkdir()
    (made / "vessel.py").write_text(SOURCE)
    return made


def test_it_is_kept_apart_where_none_may_be_written(
    folder: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    path = imported(folder, cache, PYTHONDONTWRITEBYTECODE="1")
    assert Path(path).is_relative_to(cache)
    assert Path(path).is_file()
    assert [p.name for p in folder.iterdir()] == ["vessel.py"]
    # A source that changes is compiled anew.
    source = folder / "vessel.py"
    written = source.stat().st_mtime_ns
    source.write_text(SOURCE.replace("compiled", "mistaken"))
    os.utime(source, ns=(written + 1, written + 1))  # of one size, in one second
    with pytest.raises(AssertionError):
        imported(folder, cache, PYTHONDONTWRITEBYTECODE="1")


def test_it_lies_beside_its_source_where_it_may(folder: Path, tmp_path: Path) -> None:
    path = imported(folder, tmp_path / "cache")
    assert Path(path).is_relative_to(folder)
    assert Path(path).is_file()
    # And is read from there though nothing more may be written.
    again = imported(folder, tmp_path / "cache", PYTHONDONTWRITEBYTECODE="1")
    assert again == path
