"""out=: kernels that write to memory which their caller gives them."""

import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.core.budget import Depth
from kfuzz.core.codec import decode, encode
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import BindingError, KfuzzError
from kfuzz.core.finding import Target
from kfuzz.core.recipe import Case, Fill, layout_of
from kfuzz.core.verdict import CaseReport, Failure, Kind, Verdict
from kfuzz.engine.reduce import reduce_case
from kfuzz.engine.scripts import script
from kfuzz.evaluation.evaluator import Evaluator
from kfuzz.execution.interpreter.watch import interpreting
from tests.helpers import destination_kernels as given
from tests.helpers import judged_cases
from tests.helpers.findings import finding
from tests.helpers.judged_cases import judged, spec, x_case

CASE = x_case("randn", (4, 6))
LAYOUTS = ("contiguous", "padded", "transposed", "stepped", "offset")
COUNTER = iter(range(1000))
BOTH = Case(
    {
        "x": spec("randn", (4, 6), axes=("d0", "N")),
        "residual": spec("randn", (4, 6), axes=("d0", "N"), seed=4),
    },
    {"eps": 1e-6},
)


def of(function: Callable[..., Any], layout: str = "contiguous") -> CaseReport:
    return judged(ops.relu, function, replace(CASE, layout=layout), out="y")


def outcome(report: CaseReport) -> tuple[str, Kind, str] | None:
    failure = report.failure
    return None if failure is None else (failure.contract, failure.kind, failure.output)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "function",
    [
        given.relu, given.relu_returned, given.relu_first, given.relu_any,
        given.relu_kept,
    ],
)  # fmt: skip
def test_a_destination_is_passed_where_it_is_named(
    function: Callable[..., Any], layout: str
) -> None:
    report = of(function, layout)
    assert report.failure is None, report.failure
    assert report.refusal is None
    for name in ("K-VAL-01", "K-MEM-01", "K-MEM-02", "K-MEM-04", "K-REF-01"):
        assert report.verdicts[name] is Verdict.CONFORMS


@pytest.mark.parametrize(
    ("function", "layout", "broken"),
    [
        (given.fresh, "contiguous", ("K-MET-01", Kind.WRONG_TYPE, "")),
        (given.swapped, "contiguous", ("K-MEM-02", Kind.UNWRITTEN, "y")),
        (given.partial, "contiguous", ("K-MEM-02", Kind.UNWRITTEN, "y")),
        (given.unwritten, "contiguous", ("K-MEM-02", Kind.UNWRITTEN, "y")),
        (given.past, "contiguous", ("K-MEM-01", Kind.WRITE_OUTSIDE, "y")),
        (given.spoiling, "contiguous", ("K-MEM-03", Kind.INPUT_MODIFIED, "x")),
        (given.as_if_dense, "padded", ("K-MEM-01", Kind.WRITE_OUTSIDE, "y")),
        (given.as_if_dense, "transposed", ("C-CMP-03", Kind.VALUE, "y")),
    ],
)
def test_what_a_destination_must_not_meet_is_charged(
    function: Callable[..., Any], layout: str, broken: tuple[str, Kind, str]
) -> None:
    assert outcome(of(function, layout)) == broken


def test_writing_as_if_dense_is_right_where_it_is() -> None:
    for layout in ("contiguous", "offset"):
        assert of(given.as_if_dense, layout).failure is None
    bound = kernel(ops.relu, name="k_dense", out="y", layouts="contiguous")
    claims = bound(given.as_if_dense).declaration
    seeds = range(0, 15120 * 16, 15120)
    cases = [Case({"x": spec("randn", (4, 6), seed=s)}) for s in seeds]
    assert {layout_of(c, claims) for c in cases} == {"contiguous"}
    every = {layout_of(c, Declaration(out=("y",))) for c in cases}
    assert every == set(LAYOUTS)


def test_a_layout_in_the_default_breadth_may_be_refused() -> None:
    def strict(x: torch.Tensor, y: torch.Tensor) -> None:
        assert y.is_contiguous()
        given.relu(x, y)

    assert of(strict, "padded").refusal == "non-contiguous destination"
    declared = judged(
        ops.relu, strict, replace(CASE, layout="padded"), out="y", layouts="any"
    )
    assert outcome(declared) == ("K-LIV-01", Kind.RAISES, "")


@pytest.mark.parametrize("layout", ["contiguous", "padded", "transposed"])
def test_several_destinations(layout: str) -> None:
    case = replace(BOTH, layout=layout)
    report = judged(ops.add_rms_norm, given.fused, case, out=("h", "y"))
    assert report.failure is None, report.failure
    wrong = judged(ops.add_rms_norm, given.fused_swapped, case, out=("y", "h"))
    assert outcome(wrong) == ("K-MET-01", Kind.WRONG_TYPE, "")


def test_a_destination_is_given_where_no_value_is_promised() -> None:
    def refusing(x: torch.Tensor, y: torch.Tensor) -> None:
        if not bool(torch.isfinite(x).all()):
            raise FloatingPointError("not finite")
        given.relu(x, y)

    case = x_case("nan1", (4, 6))
    report = judged(ops.relu, refusing, case, out="y", nonfinite="raise")
    assert report.failure is None
    assert report.verdicts == {"C-EXC-01": Verdict.CONFORMS}
    taken = judged(ops.relu, given.relu, case, out="y", nonfinite="raise")
    assert outcome(taken) == ("C-EXC-01", Kind.NONFINITE_ACCEPTED, "x")


@pytest.mark.parametrize(
    ("function", "claims", "says"),
    [
        (lambda x: x, {"out": "y"}, "no parameter for its destination 'y'"),
        (given.relu, {"out": "z"}, "name every output: out=('y',)"),
        (given.relu, {"out": ("y",), "inplace": "x"}, "either inplace or"),
        (given.relu, {"out": 3}, "not a tuple of output names"),
    ],
)
def test_a_destination_that_cannot_be_passed_is_a_binding_error(
    function: Callable[..., Any], claims: dict[str, Any], says: str
) -> None:
    with pytest.raises(BindingError) as error:
        kernel(ops.relu, name=f"bad{next(COUNTER)}", **claims)(function)
    assert says in str(error.value)


def bench_of(function: Callable[..., Any], **claims: Any) -> Evaluator:
    return judged_cases.bench_of(
        ops.relu, function, sizes="interpret", out="y", **claims
    )


@pytest.mark.skipif(not interpreting(), reason="needs the interpreter")
def test_addresses_of_a_destination_are_checked_in_the_interpreter() -> None:
    def judge(layout: str, **how: Any) -> CaseReport:
        def run(x: torch.Tensor, y: torch.Tensor) -> None:
            given.launched(x, y, **how)

        case = replace(CASE, layout=layout, poison="finite")
        return bench_of(run).judge(case, Depth.FULL)

    for layout in LAYOUTS:
        assert judge(layout).failure is None
    read = judge("contiguous", fault="reads").failure
    assert read is not None
    assert (read.contract, read.kind) == ("K-MEM-02", Kind.UNWRITTEN)
    assert "the kernel loads uninitialized elements of y" in read.message
    for layout in ("contiguous", "padded"):
        stray = judge(layout, fault="past").failure
        assert stray is not None
        assert (stray.contract, stray.output) == ("K-MEM-01", "y")
        assert "destination_kernels.py:" in stray.accesses[0].line
    assert outcome(judge("padded", dense=True)) == ("K-MEM-01", Kind.WRITE_OUTSIDE, "y")


def test_the_layout_is_pinned_reduced_and_stored() -> None:
    evaluator = bench_of(given.as_if_dense)
    drawn = Case({"x": spec("randn", (4, 6), seed=15120 * 5)})
    pinned = evaluator.pin(replace(drawn, layout="transposed"))
    place = pinned.destinations["y"]
    assert (place.shape, place.strides, place.dtype) == ((4, 6), (1, 4), "float32")
    assert decode(Case, encode(pinned)) == pinned
    assert evaluator.pin(pinned) == pinned

    def fails(case: Case) -> bool:
        failure = evaluator.judge(case, Depth.BASE).failure
        return failure is not None and failure.kind is Kind.VALUE

    minimum, _ = reduce_case(pinned, fails, lambda case: True, deadline=float("inf"))
    assert minimum.layout == "transposed"
    assert minimum.elements <= 4
    steady = replace(pinned, layout="transposed")
    always, _ = reduce_case(steady, lambda c: True, lambda c: True, deadline=1e12)
    assert always.layout == "contiguous"


@pytest.mark.parametrize(
    ("body", "kind", "mended"),
    [
        ("y.as_strided((2, 3), (3, 1)).copy_(x)", Kind.VALUE, "y.copy_(x)"),
        ("y.copy_(x)\n    return x", Kind.WRONG_TYPE, "y.copy_(x)\n    return y"),
        (
            "y.copy_(x)\n    ctypes.memset(y.data_ptr() + 12, 0, 4)",
            Kind.WRITE_OUTSIDE, "y.copy_(x)",
        ),
        ("y.copy_(x)\n    x.zero_()", Kind.INPUT_MODIFIED, "y.copy_(x)"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("head", ["x, *, y", "y, x", "x, block=1, y=None"])
def test_a_script_gives_the_destination_too(
    body: str,
    kind: Kind,
    mended: str,
    head: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["repro.py"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    evaluator = bench_of(given.relu)
    fill = Fill("randn", 2)
    tensors = {"x": replace(CASE.tensors["x"], shape=(2, 3), fill=fill)}
    case = evaluator.pin(Case(tensors, layout="padded", poison="nan"))
    x = evaluator.values(case)["x"]
    failure = Failure("K-VAL-01", kind, "it fails", "y" if kind != "wrong_type" else "")
    if kind is Kind.VALUE:
        want = float(x[1, 2])
        failure = replace(failure, index=(1, 2), expected=want, low=want, high=want)
    made = finding(
        kernel="mine", case=case, failure=failure,
        declaration=Declaration(out=("y",)), target=Target("kernels.py", "mine"),
    )  # fmt: skip
    for line, code in ((body, 1), (mended, 0)):
        text = f"import ctypes\n\n\ndef mine({head}):\n    {line}\n"
        Path("kernels.py").write_text(text)
        Path("repro.py").write_text(script(made))
        with pytest.raises(SystemExit) as end:
            runpy.run_path("repro.py")
        assert end.value.code == code, line
    with pytest.raises(KfuzzError, match="shapes of its results"):
        script(replace(made, case=replace(case, destinations={})))
