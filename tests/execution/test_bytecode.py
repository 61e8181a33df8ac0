"""Bytecode is kept where Python itself keeps none, and nowhere else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMPORTING = """
import sys
sys.path.insert(0, sys.argv[1])
from kfuzz.execution.processes import forking
forking.keep_bytecode()
import torch
print(torch.__cached__)
"""


def imported(folder: Path, cache: Path, **environment: str) -> Path:
    """Import a library in a fresh process; return where its bytecode is to lie."""
    hidden = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
    env = {k: v for k, v in os.environ.items() if k not in hidden}
    env |= {"PYTHONPATH": str(ROOT), "KFUZZ_CACHE": str(cache), **environment}
    command = [sys.executable, "-c", IMPORTING, str(folder)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "library"
    made.mkdir()
    (made / "torch.py").write_text("")
    return made


def test_it_is_kept_apart_where_none_may_be_written(
    folder: Path, tmp_path: Path
) -> None:
    path = imported(folder, tmp_path / "cache", PYTHONDONTWRITEBYTECODE="1")
    assert path.is_relative_to(tmp_path / "cache")
    assert path.is_file()
    assert [p.name for p in folder.iterdir()] == ["torch.py"]


def test_it_lies_beside_its_source_where_it_may(folder: Path, tmp_path: Path) -> None:
    path = imported(folder, tmp_path / "cache")
    assert path.is_relative_to(folder)
    assert path.is_file()
    # And is read from there though nothing more may be written.
    again = imported(folder, tmp_path / "cache", PYTHONDONTWRITEBYTECODE="1")
    assert again == path


def test_a_folder_that_the_user_names_is_left(folder: Path, tmp_path: Path) -> None:
    given = tmp_path / "given"
    path = imported(folder, tmp_path / "cache", PYTHONPYCACHEPREFIX=str(given))
    assert path.is_relative_to(given)
