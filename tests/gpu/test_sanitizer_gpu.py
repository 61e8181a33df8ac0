"""`kfuzz replay --sanitizer` on a GPU: compute-sanitizer sees each allocation."""

import threading
from pathlib import Path

import pytest

from kfuzz.core.errors import BackendError
from kfuzz.core.event import FindingSaved
from kfuzz.engine.config import ReplayConfig, Sanitized
from kfuzz.engine.replay import sanitize
from kfuzz.execution.device import sanitizer
from kfuzz.store.corpus import Stored
from tests.helpers.searches import searched

try:
    sanitizer.find()
    MISSING = ""
except BackendError as error:
    MISSING = str(error)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=MISSING or "there is a tool"),
]

KERNELS = """
import torch
import triton
import triton.language as tl
from kfuzz.contracts import kernel, operators as ops


@triton.jit
def _wrong(x_ptr, y_ptr, n, more, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n + more, other=0.0)
    tl.store(y_ptr + offs, x + 1.0, mask=offs < n)


def _call(x, more):
    y = torch.empty_like(x)
    _wrong[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), more, BLOCK=64)
    return y


@kernel(ops.relu, dtypes=("float32",), layouts="contiguous")
def reads_beyond(x):
    return _call(x, 1)


@kernel(ops.relu, dtypes=("float32",), layouts="contiguous")
def is_wrong_only(x):
    return _call(x, 0)
"""


def sanitized(name: str, folder: Path) -> Sanitized:
    """Find what is wrong with a kernel, and run it under memcheck."""
    (folder / "kernels.py").write_text(KERNELS)
    events = searched(
        f"{folder / 'kernels.py'}::{name}",
        max_time=30.0, max_cases=30, max_findings=1, device="cuda",
        contracts=("K-VAL-01",),
    )  # fmt: skip
    found = [e for e in events if isinstance(e, FindingSaved)]
    assert found, events[-2:]
    stored = Stored(found[-1].finding, Path(found[-1].path))
    asked = ReplayConfig(root=folder, corpus=folder / "corpus")
    [result] = sanitize([stored], "memcheck", asked, stop=threading.Event())
    return result


def test_an_over_read_is_reported_and_stored(tmp_path: Path) -> None:
    result = sanitized("reads_beyond", tmp_path)
    assert result.report is not None, result.problem
    assert result.report.count, result.report.text
    assert "read" in result.report.errors[0].what.lower(), result.report.text
    assert result.file is not None
    assert result.file.exists()


def test_a_wrong_value_alone_is_no_error_of_memory(tmp_path: Path) -> None:
    result = sanitized("is_wrong_only", tmp_path)
    assert result.report is not None, result.problem
    assert result.report.count == 0, result.report.text
    assert result.raised == ""
