"""Masks, tensors of a dtype of their own, dtypes and texts as scalars, relations."""

import runpy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from torch import Tensor

from kfuzz import strategies as ks
from kfuzz.contracts import kernel
from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import accept, compare_all, pose
from kfuzz.contracts.suite import select_classes
from kfuzz.core.budget import Depth
from kfuzz.core.codec import decode, encode
from kfuzz.core.errors import BindingError
from kfuzz.core.finding import Target
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import Failure, Kind
from kfuzz.engine.scripts import script
from kfuzz.evaluation.drawing import strategy_of
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.numerics import elementwise
from kfuzz.numerics.acceptance import Acceptance, Problem, around, between
from kfuzz.numerics.formats import INTEGERS
from tests.helpers.budgets import SIZE_BUDGETS
from tests.helpers.findings import finding

BUDGET = SIZE_BUDGETS["interpret"]
IDS = select_classes((), ())


def blended(mask: Tensor, codes: Tensor, scale: Tensor, x: Tensor, **_: Any) -> Tensor:
    """Codes on a scale where the mask is true, else x."""
    return torch.where(mask, codes * scale.unsqueeze(-1), x)


BLEND = Operator(
    "blend",
    inputs={
        "mask": ks.masks("* N"),
        "codes": ks.tensors("* N", dtype="int8"),
        "scale": ks.tensors("*", dtype="float32", role="variance"),
        "x": ks.tensors("* N"),
        "mode": ks.scalar("mean", ("sum",)),
        "dtype": ks.dtype("float32", ("float16", "float8_e5m2")),
    },
    oracle=blended,
    error_model=elementwise(ulps=1),
    dtypes=("float32", "float16", "float8_e5m2"),
)

SEEN: list[dict[str, Any]] = []


@kernel(BLEND, name="blend", dtypes=("float32", "float16"))
def blend(
    mask: Tensor, codes: Tensor, scale: Tensor, x: Tensor, *, mode: str,
    dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    SEEN.append({"mode": mode, "dtype": dtype, "mask": mask, "codes": codes})
    return blended(mask, codes, scale, x.float()).to(x.dtype)


def drawn(bound: BoundKernel, count: int = 150) -> list[Case]:
    strategy, found = strategy_of(bound, BUDGET), []
    assert strategy is not None

    @settings(
        max_examples=count, database=None, derandomize=True, deadline=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def collect(case: Case) -> None:
        found.append(case)

    collect()
    return found


def evaluator(bound: BoundKernel) -> Evaluator:
    return Evaluator(bound, setting_of("cpu", BUDGET, IDS))


def test_drawn_cases_hold_each_kind_and_survive_json() -> None:
    made = drawn(blend)
    for case in made:
        dtypes = {name: spec.dtype for name, spec in case.tensors.items()}
        assert dtypes.pop("x") in ("float32", "float16")
        assert dtypes == {"mask": "bool", "codes": "int8", "scale": "float32"}
        assert case.tensors["scale"].axes == case.tensors["x"].axes[:-1]
        assert BLEND.accepts(case, blend.declaration)
        assert decode(Case, encode(case)) == case
    scalars = {(c.scalars["mode"], c.scalars["dtype"]) for c in made}
    # Of the domain what is declared: no float8.
    names = ("float32", "float16")
    assert scalars == {(m, d) for m in ("mean", "sum") for d in names}
    masks = [c.tensors["mask"] for c in made]
    assert len({m.fill.family for m in masks if m.fill}) == 8
    assert any(not m.is_contiguous for m in masks)
    assert any(m.offset for m in masks)


@pytest.mark.slow
def test_a_kernel_gets_dtypes_and_texts_and_is_judged() -> None:
    judge = evaluator(blend)
    SEEN.clear()
    for case in drawn(blend, 15):
        report = judge.judge(case, Depth.FULL)
        assert report.failure is None, (report.failure, case)
        assert report.refusal is None
        given = SEEN[-1]
        assert str(given["dtype"]) == f"torch.{case.scalars['dtype']}"
        assert given["mode"] == case.scalars["mode"]
        assert (given["mask"].dtype, given["codes"].dtype) == (torch.bool, torch.int8)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ks.tensors("N", dtype="float12"),
        lambda: ks.dtype("float12"),
        lambda: ks.dtype("int8"),
        lambda: ks.scalar("mean", ("float16",)),
        lambda: ks.scalar("nan"),
    ],
)
def test_nonsense_is_refused(make: Any) -> None:
    with pytest.raises(BindingError):
        make()


# --- relations ----------------------------------------------------------------


def best(x: Tensor) -> Any:
    """The greatest element of each row, and where it is."""
    return x.amax(-1), x.argmax(-1)


def best_error(problem: Problem) -> dict[str, Acceptance]:
    value, index = best(problem.tensors["x"])
    low = torch.zeros_like(value)
    high = torch.full_like(value, problem.tensors["x"].shape[-1] - 1)
    at = between(
        problem, index.double(), low, high,
        undecided=value.isnan(), output=INTEGERS["int64"],
    )  # fmt: skip
    return {"value": around(problem, value, 0.0), "index": at}


def best_related(problem: Problem, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The index names an element equal to the greatest."""
    x = problem.tensors["x"]
    at = outputs["index"].clamp(0, x.shape[-1] - 1).unsqueeze(-1)
    return {"index": x.gather(-1, at).squeeze(-1) == x.amax(-1)}


BEST = Operator(
    "best",
    inputs={"x": ks.tensors("* N")},
    oracle=best,
    error_model=best_error,
    relation=best_related,
    outputs=("value", "index"),
    reduced="N",
    empty_reduction=False,
)


@kernel(BEST, name="last_of_equals")
def last_of_equals(x: Tensor) -> tuple[Tensor, Tensor]:
    value = x.amax(-1)
    return value, x.shape[-1] - 1 - x.flip(-1).argmax(-1)


@kernel(BEST, name="never_the_fifth")
def never_the_fifth(x: Tensor) -> tuple[Tensor, Tensor]:
    value, index = x.max(-1)
    return value, torch.where(index == 4, 0, index)


@kernel(BEST, name="beyond")
def beyond(x: Tensor) -> tuple[Tensor, Tensor]:
    value, index = x.max(-1)
    return value, index + x.shape[-1]


def row(values: list[float]) -> Case:
    raw = torch.tensor(values).numpy().tobytes()
    return Case({"x": TensorSpec((len(values),), ("N",), "float32", values=raw)})


@pytest.mark.slow
def test_any_answer_that_the_relation_admits_is_right() -> None:
    judge = evaluator(last_of_equals)
    for values in ([1.0, 3.0, 3.0], [0.0] * 9, [2.0], [float("nan"), 1.0]):
        assert judge.judge(row(values), Depth.FULL).failure is None
    for case in drawn(last_of_equals, 15):
        assert judge.judge(case, Depth.SEARCH).failure is None, case


def test_a_wrong_answer_within_the_interval_is_a_value_failure() -> None:
    report = evaluator(never_the_fifth).judge(
        row([1.0, 2.0, 3.0, 4.0, 5.0]), Depth.FULL
    )
    failure = report.failure
    assert failure is not None
    assert (failure.kind, failure.output, failure.place) == (Kind.VALUE, "index", 1)
    assert (failure.got, failure.expected, failure.low) == (0.0, None, None)
    wanted = "index[] = 0, expected: The index names an element equal to the greatest"
    assert failure.message.startswith(wanted)
    # At friendly shapes of four columns it passes the functional test.
    assert failure.contract in ("C-CMP-03", "K-VAL-01")


def test_the_interval_comes_first() -> None:
    failure = evaluator(beyond).judge(row([1.0, 2.0]), Depth.FULL).failure
    assert failure is not None
    assert (failure.got, failure.low, failure.high) == (3.0, 0.0, 1.0)


@pytest.mark.parametrize(
    "masks",
    [
        lambda outputs: {"index": outputs["index"]},
        lambda outputs: {"index": torch.ones(3, dtype=torch.bool)},
        lambda outputs: {"other": outputs["index"] == 0},
    ],
)
def test_a_malformed_relation_is_a_binding_error(masks: Any) -> None:
    operator = replace(BEST, relation=lambda problem, outputs: masks(outputs))
    case = row([1.0, 2.0])
    values = evaluator(beyond).values(case)
    problem = pose(operator, case, values, operator.defaults)
    outputs = dict(zip(BEST.outputs, beyond(values["x"]), strict=True))
    with pytest.raises(BindingError, match="accept returns"):
        compare_all(outputs, accept(operator, problem))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"outputs": ()}, "no output"),
        ({"relation": 3}, "relation is int, no function"),
        ({"oracle": None}, "oracle is NoneType, no function"),
    ],
)
def test_a_malformed_operator_is_a_binding_error(
    parts: dict[str, Any], message: str
) -> None:
    given: dict[str, Any] = {"oracle": torch.relu, **parts}
    with pytest.raises(BindingError, match=message):
        Operator("mine", inputs={"x": ks.tensors("*")}, **given)


def test_a_script_gives_dtypes_and_says_that_it_cannot_see_a_relation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["repro.py"])
    (tmp_path / "kernels.py").write_text(
        "def mine(mask, *, dtype, mode):\n    print(mask, dtype, mode)\n"
    )
    spec = TensorSpec((2,), ("N",), "bool", values=b"\1\0")
    made = finding(
        kernel="mine",
        case=Case({"mask": spec}, {"dtype": "float16", "mode": "mean"}, poison="nan"),
        failure=Failure("K-VAL-01", Kind.VALUE, "m", "y", index=(0,), got=1.0),
        target=Target("kernels.py", "mine"),
    )
    (tmp_path / "repro.py").write_text(script(made))
    with pytest.raises(SystemExit) as end:
        runpy.run_path("repro.py")
    assert end.value.code == 2
    said = capsys.readouterr().out
    assert "tensor([ True, False]) torch.float16 mean" in said
    assert "cannot see whether the results fit together" in said
