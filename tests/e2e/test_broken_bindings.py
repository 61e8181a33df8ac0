"""A reference that cannot judge anything is an error before anything is searched."""

import sys
from collections.abc import Callable

import pytest
import torch

import kfuzz
from kfuzz import strategies as ks
from kfuzz.app import main
from kfuzz.cli import run as apart
from kfuzz.core.errors import HarnessError
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
        ["no finite number on", "reference of kernels.py:16"],
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


def test_one_of_several_bindings_is_enough(searched: Searched) -> None:
    sound = "@kfuzz.kernel(ops.relu)\ndef right(x):\n    return torch.relu(x)\n\n\n"
    code, out, err = searched(sound + BROKEN["nan"][0])
    assert code == 2
    assert "no finite number" in err
    assert "right" not in out


def bound(name: str, inputs: str, reference: str, kernel: str, **more: str) -> str:
    parts = f", {more['parts']}" if "parts" in more else ""
    return (
        f"{reference}\n\n\n"
        f'operator = kfuzz.Operator("{name}", inputs=dict({inputs}), '
        f"oracle=reference{parts})\n\n\n"
        f"@kfuzz.kernel(operator{more.get('claims', '')})\n{kernel}\n"
    )


ROWS = 'x=ks.tensors("M N")'
ANY = 'x=ks.tensors("*")'
SOUND = {
    "an index": bound(
        "first_max", ROWS,
        "def reference(x):\n    return x.argmax(-1)",
        "def first_max(x):\n    return x.argmax(-1)",
        claims=', shape_class="N == 1"', parts='integers=("y",)',
    ),
    "a constant": bound(
        "zeros", ANY,
        "def reference(x):\n    return torch.zeros_like(x)",
        "def zeros(x):\n    return torch.zeros_like(x)",
    ),
    "an input alone": bound(
        "copied", ANY,
        "def reference(x):\n    return x",
        "def copied(x):\n    return x.clone()",
    ),
    "a view": bound(
        "turned", ROWS,
        "def reference(x):\n    return x.t()",
        "def turned(x):\n    return x.t().contiguous()",
    ),
    "in place": bound(
        "doubled", ANY,
        "def reference(x):\n    return x.mul_(2)",
        "def doubled(x):\n    x.mul_(2)",
        claims=', inplace=("x",)',
    ),
    "what raises on some data": bound(
        "root", ANY,
        "def reference(x):\n    if (x < 0).any():\n"
        "        raise ValueError('a root of what is negative')\n    return x.sqrt()",
        "def root(x):\n    return x.sqrt()",
    ),
    "what raises at some sizes": bound(
        "halves", ROWS,
        "def reference(x):\n    if x.shape[-1] % 2:\n"
        "        raise ValueError('odd')\n    a, b = x.chunk(2, -1)\n    return a + b",
        "def halves(x):\n    if x.shape[-1] % 2:\n        raise ValueError('odd')\n"
        "    a, b = x.chunk(2, -1)\n    return a + b",
    ),
    "what is finite for positive numbers": bound(
        "logarithm", ANY,
        "def reference(x):\n    return x.log()",
        "def logarithm(x):\n    return x.log()",
    ),
    "an argument that is not used": bound(
        "kept", f'{ANY}, w=ks.tensors("*")',
        "def reference(x, w):\n    return x * 1",
        "def kept(x, w):\n    return x * 1",
    ),
    "two results": bound(
        "both", ROWS,
        "def reference(x):\n    return x.amax(-1), x.amin(-1)",
        "def both(x):\n    return x.amax(-1), x.amin(-1)",
        parts='outputs=("most", "least")',
    ),
    "a launch": LAUNCHED.format(
        "lambda x: (triton.cdiv(x.numel(), 64),)", "lambda x, y: (x, y, x.numel())"
    ),
    "a launch with meta": LAUNCHED.format(
        'lambda x, meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)',
        "lambda x, y: dict(x=x, y=y, n=x.numel())",
    ),
}  # fmt: skip


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


@pytest.mark.parametrize(
    ("second", "code"), [("torch.polygamma(2, x.abs() + 1)", 4), ("x.abs()", 0)]
)
def test_one_result_does_not_stand_for_another(
    second: str, code: int, searched: Searched
) -> None:
    both = f"(x):\n    return x.amax(-1), {second}"
    claims = ', dtypes="float32", shape_class="M > 0 and N > 0"'
    text = bound(
        "two", ROWS, f"def reference{both}", f"def two{both}",
        parts='outputs=("most", "other")', claims=claims,
    )  # fmt: skip
    ended, out, _ = searched(text)
    assert ended == code, out
    told = "no element of other could be judged; "
    assert (told in out) is (code == 4)
    assert searched(text, "--contracts", "K-MEM-*")[0] == 0, "memory needs no number"


@pytest.mark.slow
def test_indices_of_well_separated_numbers_are_judged(searched: Searched) -> None:
    """A router that sends each token to its worst experts, with right weights."""
    reference = (
        "def reference(x):\n    p, i = torch.softmax(x, -1).topk(2)\n"
        "    return p / p.sum(-1, keepdim=True), i"
    )
    kernel = (
        "def routed(x):\n    s = torch.softmax(x.float(), -1)\n    p = s.topk(2)[0]\n"
        "    return (p / p.sum(-1, keepdim=True)).to(x.dtype), "
        "s.topk(2, largest=False)[1]"
    )
    text = bound(
        "routed", ROWS, reference, kernel,
        parts='outputs=("weights", "experts"), results={"experts": "int64"}',
        claims=', shape_class="N >= 2", nonfinite="undefined"',
    )  # fmt: skip
    code, out, _ = searched(text)
    assert code == 1, out
    assert "wrong value in experts" in out


def test_a_kernel_that_time_was_too_short_for_is_not_green(searched: Searched) -> None:
    slow = "@kfuzz.kernel(ops.relu)\ndef slow(x):\n    import time\n"
    text = slow + "    time.sleep(60)\n    return torch.relu(x)\n"
    code, out, _ = searched(text, "--max-time", "1s")
    assert code == 4
    assert "no value was compared: the run ended before the first case\n" in out


def test_falsify_raises_where_nothing_was_compared() -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return torch.polygamma(2, x.abs() + 1)

    operator = kfuzz.Operator(
        "derived", inputs={"x": ks.tensors("M N")}, oracle=reference
    )
    bound = kfuzz.kernel(operator, name="derived", dtypes="float32")(reference)
    with pytest.raises(HarnessError, match=r"no value was compared: .*polygamma"):
        kfuzz.falsify(bound, max_cases=3, device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize("name", SOUND)
def test_a_sound_reference_is_searched(name: str, searched: Searched) -> None:
    code, out, err = searched(SOUND[name])
    assert code != 2, err
    assert "kernel " in out
