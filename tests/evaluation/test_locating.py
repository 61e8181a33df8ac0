"""The line of a finding: kernels with one known faulty line each, and two without."""

import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest

from kfuzz.contracts.classes import CLASSES
from kfuzz.core.budget import Depth
from kfuzz.core.finding import Line
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Failure, Kind
from kfuzz.engine.search.found import drawn
from kfuzz.engine.workers.zygotes import budget_for
from kfuzz.evaluation.edits import edits_of
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.evaluation.locating import Change, Locating
from kfuzz.targets.load import Source, load

# A call that is ended in the middle may be in what is called as memory is collected.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)
KERNELS = """
import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz.contracts import operators as ops


@triton.jit
def reducing(x, y, stride, step, n, MOST: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.full([BLOCK], float("-inf") if MOST else 0.0, tl.float32)
    for start in range(0, n, BLOCK):
        offs = start + tl.arange(0, BLOCK).to(tl.int64)
        given = x + row * stride + offs * step
        part = tl.load(given, mask=offs < n, other=float("-inf") if MOST else 0.0)
        if MOST:
            total = tl.maximum(total, part.to(tl.float32))
        else:
            total = total + part.to(tl.float32)
    result = tl.max(total, axis=0) if MOST else tl.sum(total, axis=0)
    tl.store(y + row, result.to(y.dtype.element_ty))


def launch(x, dim, most):
    rows = x.movedim(dim, -1)
    shape = rows.shape[:-1]
    rows = rows.reshape(-1, x.shape[dim])
    assert rows.dim() == 2, f"rows of {dim}"
    y = x.new_empty(rows.shape[0])
    if y.numel():
        strides = rows.stride()
        reducing[(len(y),)](rows, y, *strides, rows.shape[1], MOST=most, BLOCK=4)
    return y.reshape(shape)


@kfuzz.kernel(ops.sum)
def total(x, dim):
    return launch(x, dim, False)


@kfuzz.kernel(ops.amax)
def most(x, dim):
    return launch(x, dim, True)
"""

QUICK = "a tail without mask"
FAULTS = {
    "a tail without mask": (
        "total", "(given, mask=offs < n, other=float(\"-inf\") if MOST else 0.0)",
        "(given)",
    ),
    "another stride": ("total", "row * stride", "row * n"),
    "an argument that nothing reads": ("total", "offs * step", "offs * 1"),
    "a 16-bit accumulator": (
        "total", "total + part.to(tl.float32)",
        "(total + part.to(tl.float32)).to(tl.float16).to(tl.float32)",
    ),
    "a fill that is not neutral": (
        "most", "other=float(\"-inf\") if MOST", "other=0.0 if MOST"
    ),
}  # fmt: skip


LAZY = "a kernel of a module that is imported when it is called"
FAULTS[LAZY] = FAULTS[QUICK]
APART = """
import kfuzz
from kfuzz.contracts import operators as ops


@kfuzz.kernel(ops.sum)
def total(x, dim):
    from kernels import launch

    return launch(x, dim, False)
"""


def located(
    folder: Path,
    name: str,
    text: str,
    *,
    apart: bool = False,
    kind: Kind | None = None,
    depth: Depth = Depth.BASE,
) -> tuple[Line | None, bool]:
    """Return the line of a kernel's first failing case, and whether one fails."""
    file = folder / "kernels.py"
    file.write_text(text, encoding="utf-8")
    if apart:
        file = folder / "apart.py"
        file.write_text(APART, encoding="utf-8")
    kernel = load(Source(file=file, only=(name,)), root=folder)[0]
    budget = budget_for(kernel.kernel, "interpret")
    evaluator = Evaluator(kernel.kernel, setting_of("cpu", budget, CLASSES))
    cases = drawn(kernel)
    found: list[tuple[int, Case, Failure]] = []
    for case in cases:
        failure = evaluator.judge(case, depth).failure
        if failure and kind in (None, failure.kind):
            found.append((case.elements, evaluator.pin(case), failure))
        if len(found) >= 5:
            break
    found.sort(key=lambda each: each[0])
    case, failure = evaluator.pin(cases[0]), Failure("K-VAL-01", Kind.VALUE, "")
    if found:
        _, case, failure = found[0]
    made = Locating(evaluator, failure.signature(name), folder)
    line = made.line([case, *cases], time.monotonic() + 60.0)
    # The kernel is what it was.
    assert (evaluator.judge(case, depth).failure is not None) == bool(found)
    return line, bool(found)


@pytest.mark.parametrize(
    "fault",
    [
        fault if fault == QUICK else pytest.param(fault, marks=pytest.mark.slow)
        for fault in FAULTS
    ],
)
def test_the_faulty_line_is_named(fault: str, tmp_path: Path) -> None:
    name, right, wrong = FAULTS[fault]
    text = KERNELS.replace(right, wrong)
    assert text != KERNELS
    line, fails = located(tmp_path, name, text, apart=fault == LAZY)
    assert fails
    assert line is not None
    truth = text[: text.index(wrong)].count("\n") + 1
    assert (line.file, line.line) == ("kernels.py", truth)
    assert line.source == text.splitlines()[truth - 1]
    assert "pass" in line.evidence


OTHER = """
import kfuzz
from kfuzz.contracts import operators as ops

{held}

@kfuzz.kernel(ops.sum)
def total(x, dim):
    return x.sum(dim) + 1
"""


def _looked_for(folder: Path, held: str) -> tuple[Locating, Line | None]:
    file = folder / "kernels.py"
    file.write_text(OTHER.replace("{held}", held), encoding="utf-8")
    kernel = load(Source(file=file, only=("total",)), root=folder)[0]
    budget = budget_for(kernel.kernel, "interpret")
    evaluator = Evaluator(kernel.kernel, setting_of("cpu", budget, CLASSES))
    signature = Failure("K-VAL-01", Kind.VALUE, "").signature("total")
    made = Locating(evaluator, signature, folder)
    first, *cases = drawn(kernel)
    return made, made.line([evaluator.pin(first), *cases], time.monotonic() + 60.0)


def test_of_cuda_sources_no_line_is_looked_for(tmp_path: Path) -> None:
    held = 'MODULE = kfuzz.cuda_source("__global__ void f() {}")'
    made, line = _looked_for(tmp_path, held)
    assert line is None
    assert "in CUDA C++ no line" in made.why


def test_the_line_of_a_torch_function_is_likely_at_most(tmp_path: Path) -> None:
    _, line = _looked_for(tmp_path, "")
    assert line is not None
    assert line.source.endswith("x.sum(dim) + 1")
    assert "with `x.sum(dim)` for `x.sum(dim) + 1`" in line.evidence
    assert not line.certain


LACKING = """
import torch

import kfuzz
from kfuzz.contracts import operators as ops


@kfuzz.kernel(ops.layer_norm, dtypes="float32")
def layer_norm(x, weight=None, bias=None, eps=1e-5):
    mean = x.double().mean(-1, keepdim=True)
    var = x.double().var(-1, keepdim=True)
    y = (x - mean) * torch.rsqrt(var + eps)
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias).to(x.dtype)


@kfuzz.kernel(ops.softmax, dtypes="float32")
def softmax(x, dim=-1):
    e = torch.exp(x.double())
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


@kfuzz.kernel(ops.l2_normalize, dtypes="float32")
def l2_normalize(x, dim=-1, eps=1e-12):
    norm = x.double().pow(2).sum(dim, keepdim=True)
    return (x.double() / norm.clamp_min(eps)).to(x.dtype)
"""


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("layer_norm", "var ="),
        ("softmax", "e = torch.exp("),
        ("l2_normalize", "norm ="),
    ],
)
def test_the_line_that_lacks_a_step_is_named(
    name: str, line: str, tmp_path: Path
) -> None:
    made, fails = located(tmp_path, name, LACKING)
    assert fails
    assert made is not None
    assert made.source.strip().startswith(line)
    assert not made.certain


OVERWRITES = """
import torch

import kfuzz
from kfuzz.contracts import operators as ops


@kfuzz.kernel(ops.log)
def logs(x):
    y = x.abs()
    y.sqrt_()
    x.clamp_(min=0)
    return torch.log(x)
"""


OVERWRITES_GRADIENT = """
import torch

import kfuzz
from kfuzz.contracts import operators as ops


class Log(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.log(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        grad.div_(x)
        return grad


@kfuzz.kernel(ops.log, gradients=True)
def logs(x):
    return Log.apply(x)
"""


@pytest.mark.parametrize(
    ("name", "text", "source"),
    [
        ("logs", OVERWRITES, "x.clamp_(min=0)"),
        ("logs.backward", OVERWRITES_GRADIENT, "grad.div_(x)"),
    ],
)
def test_the_line_that_changes_an_argument_is_named(
    name: str, text: str, source: str, tmp_path: Path
) -> None:
    line, fails = located(tmp_path, name, text, kind=Kind.INPUT_MODIFIED)
    assert fails
    assert line is not None
    assert line.source.strip() == source
    assert "after this line an argument is changed" in line.evidence


COUNTS = OVERWRITES_GRADIENT.replace(
    "grad.div_(x)\n        return grad",
    "ctx.factor, factor = ctx.factor + 1, ctx.factor\n        return grad / x * factor",
).replace("return torch.log(x)", "ctx.factor = 1\n        return torch.log(x)")


@pytest.mark.slow
def test_the_line_of_what_a_second_backward_pass_shows_is_named(tmp_path: Path) -> None:
    line, fails = located(tmp_path, "logs.backward", COUNTS, depth=Depth.SEARCH)
    assert fails
    assert line is not None
    assert line.source.strip() == "ctx.factor, factor = ctx.factor + 1, ctx.factor"


def test_a_correct_kernel_has_no_line(tmp_path: Path) -> None:
    line, fails = located(tmp_path, "total", KERNELS)
    assert not fails
    assert line is None


@pytest.mark.slow
def test_what_no_change_mends_has_no_line(tmp_path: Path) -> None:
    # Two faults at two lines: whichever is mended, the other one is left.
    text = KERNELS.replace(
        "total + part.to(tl.float32)", "total - part.to(tl.float32) * 3.5"
    ).replace("tl.sum(total, axis=0)", "tl.sum(total, axis=0) * 0.3 + 1.25")
    line, fails = located(tmp_path, "total", text)
    assert fails
    assert line is None


LIMIT = 40
LIMITED = """

def limited(columns):
    def total(x, dim):
        rows = x.movedim(dim, -1)
        shape = rows.shape[:-1]
        rows = rows.reshape(-1, x.shape[dim])
        y = x.new_empty(rows.shape[0])
        if y.numel():
            n, strides = rows.shape[1], rows.stride()
            reducing[(len(y),)](
                rows, y, *strides, min(n, columns), MOST=False, BLOCK=4
            )
        return y.reshape(shape)

    return total


few = kfuzz.kernel(ops.sum, name="few")(limited(LIMIT))
""".replace("LIMIT", str(LIMIT))


def test_a_bound_that_a_function_is_made_with_comes_first(tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(KERNELS + LIMITED, encoding="utf-8")
    kernel = load(Source(file=file, only=("few",)), root=tmp_path)[0]
    budget = budget_for(kernel.kernel, "interpret")
    evaluator = Evaluator(kernel.kernel, setting_of("cpu", budget, CLASSES))
    cases = drawn(kernel)
    failing = [
        case
        for case in cases
        if case.elements > 0 and evaluator.judge(case, Depth.BASE).failure
    ]
    failure = evaluator.judge(failing[0], Depth.BASE).failure
    assert failure is not None
    made = Locating(evaluator, failure.signature("few"), tmp_path)
    line = made.line([evaluator.pin(failing[0]), *cases], time.monotonic() + 60.0)
    assert line is not None
    assert "min(n, columns)" in line.source
    made.codes[0].sizes = {LIMIT + 1}  # as of the smallest case
    edits = edits_of(made.codes)
    [place] = [n for n, e in enumerate(edits) if line.evidence.startswith(e.words)]
    assert place < sum(edit.cost <= edits[place].cost for edit in edits) / 4
    assert evaluator.judge(failing[0], Depth.BASE).failure is not None


def faulty(tmp_path: Path) -> tuple[Locating, list[Case]]:
    """Return what looks for the line of a fault, and two cases that fail, pinned."""
    file = tmp_path / "kernels.py"
    name, right, wrong = FAULTS[QUICK]
    file.write_text(KERNELS.replace(right, wrong), encoding="utf-8")
    kernel = load(Source(file=file, only=(name,)), root=tmp_path)[0]
    budget = budget_for(kernel.kernel, "interpret")
    evaluator = Evaluator(kernel.kernel, setting_of("cpu", budget, CLASSES))
    failing = (c for c in drawn(kernel) if evaluator.judge(c, Depth.BASE).failure)
    cases = [evaluator.pin(case) for case in islice(failing, 2)]
    failure = evaluator.judge(cases[0], Depth.BASE).failure
    assert failure is not None
    return Locating(evaluator, failure.signature(name), tmp_path), cases


def test_it_is_given_up_where_one_call_takes_all_the_time(tmp_path: Path) -> None:
    made, [case, _] = faulty(tmp_path)
    assert made.line([case], time.monotonic()) is None
    assert made.tried == 0
    assert "a call" in made.why


def test_no_patch_without_time_to_try_it(tmp_path: Path) -> None:
    made, [case, _] = faulty(tmp_path)
    assert made.line([case], time.monotonic() + 60.0) is not None
    assert made.fixes
    assert made.drafts(time.monotonic()) == ()
    assert "could not be held" in made.why
    [draft] = made.drafts(time.monotonic() + 60.0)[:1]
    assert draft.before == (tmp_path / "kernels.py").read_text()
    assert draft.after != draft.before


def test_a_change_whose_call_the_end_cuts_short_is_not_refuted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, [case, another] = faulty(tmp_path)
    further = iter([another])
    end = time.monotonic() + 60.0

    def mends(searching: Locating, edit: Change, _: Case) -> bool:
        monkeypatch.setattr(time, "monotonic", lambda: end + 1.0)
        return edit is searching.fixes[0]

    def tries(searching: Locating, edits: Sequence[Change], _: float) -> None:
        first = edits[0]
        other = next(e for e in edits if e.line != first.line)
        searching.fixes, searching.complete = [first, other], True
        searching._rest = further

    monkeypatch.setattr(Locating, "_mends", mends)
    monkeypatch.setattr(Locating, "_try", tries)
    line = made.line([case], end)
    assert line is not None
    assert len({edit.line for edit in made.fixes}) == 2
