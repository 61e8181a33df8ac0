"""A finding as a script of few lines that needs neither kfuzz nor its file."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kfuzz.core.errors import UsageError
from kfuzz.core.finding import Finding, Line, Target
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import Failure, Kind
from kfuzz.engine.scripts import MAX_LINES, kernel_source, script, upstream
from tests.helpers.findings import finding

SOURCE = """
import torch, triton, kfuzz
import triton.language as tl

from kfuzz.contracts import operators as ops

BLOCK = 16
UNUSED = kfuzz.numerics


@triton.jit
def body(x, y, n, stride, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i * stride, mask=i < n, other=0.0)
    tl.store(y + i, tl.maximum(v, 0.0) + {off}, mask=i < n)


@kfuzz.kernel(ops.relu)
def mine(x, scale=1.0):
    y = torch.empty(x.shape, dtype=x.dtype)
    n = x.numel()
    body[(triton.cdiv(n, BLOCK),)](x, y, n, x.stride(0), BLOCK=BLOCK)
    return y * scale


@kfuzz.kernel(ops.relu)
def bound(x):
    return ops.relu.reference(x)
"""


def made(folder: Path, off: float, **changes: Any) -> Finding:
    (folder / "mine.py").write_text(SOURCE.replace("{off}", repr(off)))
    values = b"\x00\x00\x80\x3f" * 3
    spec = TensorSpec((3,), ("N",), "float32", strides=(2,), offset=1, values=values)
    failure = Failure(
        "K-VAL-01", Kind.VALUE, "off", "y", index=(1,), got=3.0, expected=2.0,
        low=1.9, high=2.1,
    )  # fmt: skip
    base = finding(
        target=Target("mine.py", "mine"),
        case=Case({"x": spec}, {"scale": 2.0}),
        failure=failure,
        device="interpret",
    )
    return replace(base, **changes)


@pytest.mark.parametrize("more", ["weight, bias", "weight, bias=None", "weight=None"])
def test_a_script_passes_none_for_a_tensor_that_the_kernel_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    source = f"import torch\n\n\ndef mine(x, {more}, *, scale):\n    return x + 0.5\n"
    one = made(tmp_path, 0.5, operator="layer_norm")
    (tmp_path / "mine.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    for n, text in enumerate((upstream(one, tmp_path), script(one))):
        (tmp_path / f"{n}.py").write_text(text)
        done = subprocess.run(
            [sys.executable, f"{n}.py"], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 1
        assert "y[1]" in done.stdout


@pytest.mark.parametrize(("off", "code"), [(0.5, 1), (0.0, 0)])
def test_it_fails_until_the_kernel_is_mended(
    tmp_path: Path, off: float, code: int
) -> None:
    line = Line("mine.py", 16, True, "with `x` for `y`,\nit passes", 4, "")
    text = upstream(made(tmp_path, off, line=line), tmp_path)
    assert "# Line mine.py:16 (certain): with `x` for `y`,\\nit passes\n" in text
    assert "kfuzz" not in text
    source = kernel_source((tmp_path / "mine.py").read_text(), "mine")
    assert len(text.splitlines()) - len(source) <= MAX_LINES
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "repro.py").write_text(text)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-I", "repro.py"], cwd=elsewhere, env=environment,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert "y[1] =" in done.stdout
    assert ("AssertionError: y[1] is wrong" in done.stderr) is bool(code)


OTHERS = """
import torch

CALLS = []


def cube(x):
    return 3 * x.detach() * x * x.detach() - {off} * x


def double(x):
    x.mul_(2 + {off})


def unsteady(x):
    CALLS.append(x)
    return x + {off} * (len(CALLS) % 7 == 6)
"""


@pytest.mark.parametrize(("off", "code"), [(1, 1), (0, 0)])
@pytest.mark.parametrize("name", ["cube.backward", "double", "unsteady"])
def test_gradients_arguments_and_repeated_calls_are_shown(
    tmp_path: Path, name: str, off: int, code: int
) -> None:
    one = made(tmp_path, 0.5)
    (tmp_path / "others.py").write_text(OTHERS.replace("{off}", str(off)))
    ones = b"\x00\x00\x80\x3f" * 3
    spec = TensorSpec((3,), ("N",), "float32", values=ones)
    tensors = {"x": spec} | ({"grad_y": spec} if "." in name else {})
    output, wanted = ("dx", 3.0) if "." in name else ("x", 2.0)
    value = replace(
        one.failure, output=output, expected=wanted, low=wanted, high=wanted
    )
    kind = Kind.NONDETERMINISTIC
    found = replace(
        one, target=Target("others.py", name), case=Case(tensors, {}), device="cpu",
        declaration=replace(
            one.declaration, inplace=("x",) if name == "double" else ()
        ),
        failure=Failure("C-ORD-02", kind, "") if name == "unsteady" else value,
    )  # fmt: skip
    script = tmp_path / "script.py"
    script.write_text(upstream(found, tmp_path))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert ("AssertionError" in done.stderr) is bool(code)


@pytest.mark.parametrize(
    ("kind", "tool"), [(Kind.WRITE_OUTSIDE, "memcheck"), (Kind.UNWRITTEN, "initcheck")]
)
def test_what_a_tool_of_gpus_shows_names_it(
    tmp_path: Path, kind: Kind, tool: str
) -> None:
    failure = Failure("K-MEM-01", kind, "a store past the end")
    text = upstream(made(tmp_path, 0.5, failure=failure), tmp_path)
    assert f"compute-sanitizer --tool {tool} python FILE" in text
    assert "# a store past the end" in text
    assert "device='cuda'" in text
    assert "TRITON_INTERPRET" not in text


def test_what_such_a_script_cannot_show_has_the_other(tmp_path: Path) -> None:
    one = made(tmp_path, 0.5)
    for changes, why in (
        ({"target": Target("mine.py", "bound")}, "that does without kfuzz"),
        ({"target": Target("mine.py", "none")}, "none is no function at the top"),
        ({"failure": replace(one.failure, kind=Kind.WRONG_DTYPE)}, "no single element"),
        ({"target": Target("../mine.py", "mine")}, "outside the project"),
        ({"case": Case({"x=1, y": one.case.data})}, "no name of Python's"),
        ({"declaration": replace(one.declaration, out=("y",))}, "inputs alone"),
    ):
        with pytest.raises(UsageError, match=why) as raised:
            upstream(replace(one, **changes), tmp_path)
        assert f"kfuzz replay {one.id} --script" in str(raised.value)


def test_an_imported_function_is_imported(tmp_path: Path) -> None:
    case = made(tmp_path, 1.0)
    (tmp_path / "kernels.py").write_text(
        "def mine(x, scale=1.0):\n    return x.clamp(min=0) + 1.0 * scale\n"
    )
    (tmp_path / "mine.py").write_text(
        'import kernels\nimport kfuzz\nkfuzz.kernel("relu")(kernels.mine)\n'
    )
    text = upstream(case, tmp_path)
    assert "from kernels import mine as mine" in text
    assert "kfuzz" not in text
    (tmp_path / "theirs.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "theirs.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert "AssertionError: y[1] is wrong" in done.stderr
