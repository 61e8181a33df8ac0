"""Operators without a floating argument: searched, explained and run by a script."""

import subprocess
import sys
from pathlib import Path

import pytest

from kfuzz.core.event import KernelFinished
from kfuzz.core.verdict import State
from kfuzz.engine.scripts import script
from tests.helpers.searches import searched

KERNELS = """
import torch

import kfuzz
from kfuzz import strategies as ks


def coded(x):
    return x ^ (x >> 1)


def counted(m):
    return m.cumsum(-1)


codes = kfuzz.reference(
    coded, {"x": ks.tensors("N", dtype="int32")}, results={"y": "int32"}
)
counts = kfuzz.reference(counted, {"m": ks.masks("M N")}, results={"y": "int64"})


@kfuzz.kernel(codes)
def right_code(x):
    return x ^ (x >> 1)


@kfuzz.kernel(codes)
def wrong_code(x):
    return x ^ (x << 1)


@kfuzz.kernel(counts)
def right_count(m):
    return m.cumsum(-1)


@kfuzz.kernel(counts)
def wrong_count(m):
    y = m.cumsum(-1)
    y[:, 100:] -= 1
    return y
"""


def finished(name: str, folder: Path) -> KernelFinished:
    (folder / "kernels.py").write_text(KERNELS, encoding="utf-8")
    events = searched(f"{folder / 'kernels.py'}::{name}", max_cases=60)
    [kernel] = [e for e in events if isinstance(e, KernelFinished)]
    return kernel


@pytest.mark.parametrize("name", ["right_code", "right_count"])
def test_a_right_one_is_compared_and_has_no_finding(name: str, tmp_path: Path) -> None:
    kernel = finished(name, tmp_path)
    assert not kernel.findings
    assert not kernel.uncompared
    assert kernel.contracts["K-VAL-01"].decided


@pytest.mark.parametrize(
    ("name", "elements", "cause"),
    [
        ("wrong_code", 1, ""),
        ("wrong_count", 101, "fails from N = 101 on, passes at 100"),
    ],
)
def test_a_fault_is_found_and_explained(
    name: str, elements: int, cause: str, tmp_path: Path
) -> None:
    [found] = finished(name, tmp_path).findings
    assert (found.state, found.input_elements) == (State.CONFIRMED, elements)
    assert found.explanation is not None
    assert cause in "\n".join(found.explanation.lines)
    program = tmp_path / "repro.py"
    program.write_text(script(found))
    command = [sys.executable, str(program)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "FAILS" in done.stdout, done.stderr
