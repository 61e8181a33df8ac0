"""A reference that cannot judge anything is an error before anything is searched."""

import sys
from collections.abc import Callable

import pytest
import torch

from kfuzz.app import main
from kfuzz.cli import run as apart
from kfuzz.engine.search import campaign
from tests.e2e.project import Project

HEADER = """\
import torch
import triton
import triton.language as tl
import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops
from kfuzz.numerics.acceptance import around

X = dict(x=ks.tensors("*"), scale=ks.scalar(2.0, (0.5,)))


def tanh(x, *, scale):
    return torch.tanh(x) * scale


"""
KERNEL = """

@kfuzz.kernel(operator)
def scaled_tanh(x, scale=2.0):
    return torch.tanh(x) * scale
"""
MADE = '\n\noperator = kfuzz.Operator("scaled_tanh", inputs=X, oracle=reference{})\n'


def oracle(body: str, parameters: str = "x, *, scale") -> str:
    return f"def reference({parameters}):\n    {body}\n" + MADE.format("") + KERNEL


def modelled(body: str, parts: str = "error_model=model") -> str:
    return (
        f"reference = tanh\n\n\ndef model(problem):\n"
        '    r = torch.tanh(problem.tensors["x"]) * problem.number("scale")\n'
        f"    {body}\n" + MADE.format(f", {parts}") + KERNEL
    )


LAUNCHED = """
@triton.jit
def body(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


kfuzz.kernel(ops.copy, out=("y",), layouts="contiguous")(
    kfuzz.launch(body, grid={}, args={}, BLOCK=64)
)
"""

# What the file binds, what the paragraph says, and its line where it has one.
BROKEN = {
    "arity": (
        oracle("return torch.tanh(x)", "x"),
        ["'scale'", "reference of kernels.py:16"],
    ),
    "none": (
        oracle("torch.tanh(x) * scale"),
        ["NoneType", "reference of kernels.py:16"],
    ),
    "shape": (
        oracle("return torch.tanh(x).sum(-1, keepdim=True) * scale"),
        ["different shapes", "expected (", "reference of kernels.py:16"],
    ),
    "count": (oracle("return x, x"), ["2 results", "reference of kernels.py:16"]),
    "data types": (
        modelled('return around(problem, r, {"float32": 1e-6}[problem.format.name])'),
        ["float16", "KeyError", ": return around(problem", "dtypes=('float32',)"],
    ),
    "constant": (
        oracle("return torch.zeros_like(x)"),
        ["a constant", "reference of kernels.py:16"],
    ),
    "nan": (
        oracle("return torch.tanh(x) * scale * float('nan')"),
        ["no finite number", "reference of kernels.py:16"],
    ),
    "nan in one of two results": (
        "def reference(x):\n    return x.abs(), x * float('nan')\n\n\n"
        'operator = kfuzz.Operator("two", inputs=dict(x=ks.tensors("*")), '
        'oracle=reference, outputs=("y", "z"))\n\n\n'
        "@kfuzz.kernel(operator)\ndef two(x):\n    return x.abs(), x + 1\n",
        ["no finite number in z on", "reference of kernels.py:16"],
    ),
    "name of an argument": (
        oracle("return torch.tanh(x) * factor", "x, *, factor"),
        ["unexpected keyword argument 'scale'", "scaled_tanh(x, *, scale)"],
    ),
    "name of an output": (
        modelled('return {"out": around(problem, r, 1e-2)}'),
        ["'out'", "'y'"],
    ),
    "order of arguments": (
        "def reference(w, x):\n    return x - w\n\n\n"
        'operator = kfuzz.Operator("less", inputs=dict(x=ks.tensors("*"), '
        'w=ks.tensors("*")), oracle=reference)\n\n\n'
        "@kfuzz.kernel(operator)\ndef less(x, w):\n    return x - w\n",
        ["w, x", "x, w", "reference of kernels.py:16"],
    ),
    "relation": (
        modelled("raise KeyError(outputs)", "relation=model").replace(
            "(problem)", "(problem, outputs)"
        ),
        ["relation raises", "raise KeyError(outputs)"],
    ),
    "within": (
        'reference = tanh\nkeep = {"x"}.pop\n' + MADE.format(", within=len") + KERNEL,
        ["within="],
    ),
    "arguments of a launch": (
        LAUNCHED.format("lambda x: (1,)", "lambda x, y: (x, y, 1, 2, 3)"),
        ["args= does not fit body(x, y, n, BLOCK)"],
    ),
    "grid of a launch": (
        LAUNCHED.format("lambda x: (x.numel() / 64,)", "lambda x, y: (x, y, 1)"),
        ["grid= gives", "no whole number"],
    ),
}
if not torch.cuda.is_available():
    BROKEN["a GPU"] = (
        oracle("return torch.tanh(x.cuda()) * scale"),
        ["kernels.py:17: return torch.tanh(x.cuda())", "leave out .cuda()"],
    )


@pytest.fixture
def searched(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., tuple[int, str, str]]:
    """Return what runs kfuzz on a file in this process, which has torch already."""
    monkeypatch.chdir(project.folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(apart, "events", campaign.run)

    def run(text: str, *more: str) -> tuple[int, str, str]:
        project.write("kernels.py", HEADER + text)
        words = ["--device", "cpu", "--max-cases", "3", "--seed", "1", *more]
        return main(["run", "kernels.py", *words]), *capsys.readouterr()

    return run


Searched = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_reference_ends_the_run_before_it_begins(
    name: str, searched: Searched, project: Project
) -> None:
    text, parts = BROKEN[name]
    code, out, err = searched(text)
    assert code == 2, out + err
    paragraph = err.splitlines()[-1]
    assert paragraph.startswith("kfuzz: error: kernels.py:")
    for part in (*parts, "kernel ", "operator "):
        assert part in paragraph
    assert " in 3 cases" not in out
    assert not project.corpus.exists()


def bound(name: str, inputs: str, reference: str, kernel: str, **more: str) -> str:
    parts = f", {more['parts']}" if "parts" in more else ""
    return (
        f"{reference}\n\n\n"
        f'operator = kfuzz.Operator("{name}", inputs=dict({inputs}), '
        f"oracle=reference{parts})\n\n\n"
        f"@kfuzz.kernel(operator{more.get('claims', '')})\n{kernel}\n"
    )


ROWS = 'x=ks.tensors("M N")'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        ("x.abs(), x.abs() - 1e9", 1, "missing infinity in other"),
        ("x + 1, x.abs() - float('inf')", 1, " in most"),
        ("x.abs(), x.abs() - float('inf')", 0, ""),
    ],
)
def test_a_result_that_is_infinite_alone_is_compared_beside_another(
    given: str, code: int, told: str, searched: Searched
) -> None:
    reference = "def reference(x):\n    return x.abs(), x.abs() - float('inf')"
    text = bound(
        "two", ROWS, reference, f"def two(x):\n    return {given}",
        parts='outputs=("most", "other")',
        claims=', dtypes="float32", nonfinite="undefined"',
    )  # fmt: skip
    ended, out, err = searched(text)
    assert ended == code, out + err
    assert told in out


@pytest.mark.slow
def test_a_run_that_compared_nothing_is_not_green(
    searched: Searched, project: Project
) -> None:
    reference = "def reference(x):\n    return torch.polygamma(2, x.abs() + 1)"
    kernel = "def derived(x):\n    return torch.polygamma(2, x.abs() + 1)"
    sound = "\n\n@kfuzz.kernel(ops.relu)\ndef right(x):\n    return torch.relu(x)\n"
    claims = ', dtypes="float32", shape_class="M > 0 and N > 0"'
    text = bound("derived", ROWS, reference, kernel, claims=claims) + sound
    code, out, _ = searched(text, "--report", "junit=junit.xml")
    assert code == 4
    why = "no value was compared: the error model decides nothing in every case: "
    assert f"  {why}y is undecided: no error rule for aten.polygamma\n" in out
    assert "no value compared for 1 kernel, " in out
    about = out.partition("\nkernels.py::derived\n")[2].partition("::right")[0]
    assert "conforms" not in about
    assert " hold" not in about
    assert f'<error message="{why}' in (project.folder / "junit.xml").read_text()
