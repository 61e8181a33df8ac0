"""Problems in KernelBench's form: what their files say, and what they are worth."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.oracle import compare_all
from kfuzz.core.budget import Depth
from kfuzz.core.errors import UsageError
from kfuzz.core.recipe import Case
from kfuzz.evaluation.evaluator import setting_of
from kfuzz.execution.device.backends import CPU as CPU_BACKEND
from kfuzz.execution.device.backends import backend_of
from kfuzz.features.judge.candidate import CandidateEvaluator, bound, claims_of
from kfuzz.features.judge.kernelbench.problem import Form, results
from kfuzz.features.judge.kernelbench.reference import (
    PosedProblem,
    Reference,
    open_problem,
)
from kfuzz.features.judge.kernelbench.values import (
    OWN,
    SHIFTED,
    OutOfRange,
    Shapes,
    shapes_of,
)
from tests.features.judge.judging import problem
from tests.helpers.budgets import SIZE_BUDGETS

CPU = torch.device("cpu")


class Files:
    """Writes reference files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def write(self, forward: str, inputs: str, **more: str) -> Path:
        self._count += 1
        path = self._folder / f"problem_{self._count}.py"
        path.write_text(problem(forward, inputs, **more))
        return path

    def shapes(self, forward: str, inputs: str, **more: str) -> Shapes:
        return shapes_of(Form(self.write(forward, inputs, **more), CPU))

    def problem(self, forward: str, inputs: str, **more: str) -> PosedProblem:
        return open_problem(self.write(forward, inputs, **more), "cpu", CPU_BACKEND)

    def reference(self, forward: str, inputs: str, **more: str) -> Reference:
        made = self.problem(forward, inputs, **more)
        assert made.reference is not None, made.audit
        return made.reference


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def resized(reference: Reference, **sizes: int) -> Case:
    """Return the file's own values at other sizes."""
    case = reference.case("form", 3)
    return Case(
        {
            name: replace(
                spec,
                shape=tuple(
                    sizes.get(axis, n)
                    for axis, n in zip(spec.axes, spec.shape, strict=True)
                ),
            )
            for name, spec in case.tensors.items()
        }
    )


def test_equal_sizes_are_tied_only_where_the_reference_needs_it(files: Files) -> None:
    square = "torch.rand(8, 8), torch.rand(8, 8)"
    product = files.shapes("return x @ y", square, takes="x, y")
    assert product.axes == (("A", "B"), ("B", "C"))
    total = files.shapes("return x + y", square, takes="x, y")
    assert total.axes == (("A", "B"), ("A", "B"))
    apart = files.shapes("return x.sum() + y.sum()", square, takes="x, y")
    assert apart.axes == (("A", "B"), ("C", "D"))


def test_sizes_that_depend_on_one_another_in_one_tensor_are_equal(
    files: Files,
) -> None:
    made = files.shapes("return x + x.t()", "torch.rand(8, 8)")
    assert made.axes == (("A", "B"),)
    assert "B == A" in made.rules
    assert made.free == ("A",)


def test_parameters_fix_what_they_meet(files: Files) -> None:
    made = files.shapes(
        "return self.linear(x)", "torch.rand(4, 16)",
        init="self.linear = nn.Linear(16, 3)",
    )  # fmt: skip
    assert made.free == ("A",)
    assert "B == 16" in made.rules


def test_multiples_and_least_sizes_are_found(files: Files) -> None:
    grouped = files.shapes(
        "return x.view(x.shape[0], 4, -1).sum(1)", "torch.rand(3, 8)"
    )
    assert "B % 4 == 0" in grouped.rules
    filtered = files.shapes(
        "return self.conv(x)", "torch.rand(2, 3, 16, 16)",
        init="self.conv = nn.Conv2d(3, 4, 5)",
    )  # fmt: skip
    assert "B == 3" in filtered.rules
    assert "C >= 5" in filtered.rules


def test_a_reference_keeps_its_own_acceptance(files: Files) -> None:
    reference = files.reference(
        "return self.norm(self.conv(x)).relu()", "torch.rand(4, 3, 9, 9)",
        init="self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)",
    )  # fmt: skip
    for family in ("form", "form_times_3", "form_negated", "randn", "offset"):
        case = reference.case(family, 5)
        values = reference.values.of(case)
        admitted = reference.accepted(case, values, reference.operator.defaults)
        [y] = results(reference(*values.values()))
        made = compare_all({"y": y}, admitted)["y"]
        assert not bool(made.missed.any())
        assert int((made.outcomes == 0).sum())


def test_an_offset_shows_a_variance_in_one_pass(files: Files) -> None:
    reference = files.reference(
        "return nn.functional.layer_norm(x, (64,))", "torch.randn(16, 64)"
    )

    def one_pass(x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = (x * x).mean(-1, keepdim=True) - mean * mean
        return (x - mean) / torch.sqrt(variance.clamp_min(0) + 1e-5)

    for seed in range(4):
        case = reference.case(SHIFTED, seed)
        values = reference.values.of(case)
        admitted = reference.accepted(case, values, reference.operator.defaults)
        for function, is_wrong in ((one_pass, True), (reference, False)):
            made = compare_all({"y": function(values["x"])}, admitted)["y"]
            assert bool(made.missed.any()) is is_wrong


def test_the_oracle_leaves_no_trace_in_the_model(files: Files) -> None:
    reference = files.reference(
        "return self.norm(x)", "torch.rand(8, 4)", init="self.norm = nn.BatchNorm1d(4)"
    )
    kept = {n: b.clone() for n, b in reference.form.model.named_buffers()}
    reference(*reference.values.of(reference.case("form", 2)).values())
    for name, buffer in reference.form.model.named_buffers():
        assert torch.equal(buffer, kept[name])


def test_integers_stay_integers_in_their_range(files: Files) -> None:
    reference = files.reference(
        "return nn.functional.cross_entropy(x, t)",
        "torch.rand(16, 10), torch.randint(0, 10, (16,))", takes="x, t",
    )  # fmt: skip
    bound = reference.values.bounds["t"]
    assert (bound.least, bound.greatest, bound.below) == (0, 9, "B")
    table = files.reference(
        "return self.table(t) * x", "torch.rand(4, 8), torch.randint(0, 50, (4,))",
        takes="x, t", init="self.table = nn.Embedding(50, 8)",
    )  # fmt: skip
    for seed in range(20):
        table(*table.values.of(table.case("form", seed)).values())
    small = reference.values.of(resized(reference, A=50, B=3))
    assert small["t"].dtype is torch.int64
    assert int(small["t"].max()) <= 2
    with pytest.raises(OutOfRange):
        reference.values.require([small["x"], small["t"] + 3])


def test_other_shapes_have_the_values_of_the_file(files: Files) -> None:
    reference = files.reference("return x * 2", "torch.rand(16, 8) + 5")
    made = reference.values.of(resized(reference, A=33, B=7))["x"]
    assert made.shape == (33, 7)
    assert 5 <= float(made.min()) <= float(made.max()) <= 6
    home = reference.values.of(reference.case("form_times_3", 4))["x"]
    plain = reference.values.of(reference.case("form", 4))["x"]
    assert torch.equal(home, plain * 3)


@pytest.mark.parametrize(
    ("forward", "inputs", "more", "says"),
    [
        ("return torch.ones(3)", "torch.rand(4)", {}, "same for every input"),
        ("return x * 2", "torch.rand(4), torch.rand(4)", {"takes": "x, y"}, "on y"),
        (
            "return x + self.w.sum() * 0", "torch.rand(4)",
            {"init": "self.w = nn.Parameter(torch.ones(3))"}, "on its weights",
        ),
        ("return nn.functional.dropout(x)", "torch.rand(64)", {}, "random generator"),
        (
            # As a GPU does that takes float32 for TF32.
            "return x @ x.t() * (1 if x.dtype is torch.float64 else 1.001)",
            "torch.rand(8, 64)", {},
            "misses its own float64 value",
        ),
        (
            "return (x * 1e-9 + 1.0) - x * 1e-9", "torch.rand(16)", {},
            "inside the noise|same for every",
        ),
        ("return [x, 'text']", "torch.rand(4)", {}, "no tensor"),
        ("return x", "torch.rand(4, dtype=torch.float64)", {}, "float64"),
        ("return x + 1", "torch.arange(4)", {}, "no argument holds floating"),
        ("return x[9]", "torch.rand(4)", {}, "raises IndexError on its own inputs"),
        (
            "return self.f(x)", "torch.rand(4, 8)",
            {"init": "self.f = nn.utils.spectral_norm(nn.Linear(8, 8))"},
            "depends on earlier calls",
        ),
        (
            "return self.f(x)", "torch.rand(4, 8)",
            {"init": "self.f = nn.LazyLinear(8)"}, "lazy module",
        ),
        (
            "return x.relu(), torch.fft.rfft(x).abs()", "torch.rand(4, 8)", {},
            "no bound is known for its result y1",
        ),
    ],
)  # fmt: skip
def test_a_problem_that_decides_nothing_says_why(
    files: Files, forward: str, inputs: str, more: dict[str, str], says: str
) -> None:
    [fault] = files.problem(forward, inputs, **more).audit.faults
    assert re.search(says, fault), fault


def test_nothing_is_said_where_the_reference_makes_nan_of_numbers(
    files: Files,
) -> None:
    """A candidate may take 0 / 0 for 0."""
    reference = files.reference("return x * x / x.abs()", "torch.randn(4, 8)")
    for family, left_open in (("zeros", True), (OWN, False), ("nan1", False)):
        case = reference.case(family, 1)
        values = reference.values.of(case)
        admitted = reference.accepted(case, values, reference.operator.defaults)["y"]
        assert bool(admitted.undecided.any()) is left_open, family


def test_a_sound_problem_has_no_fault_and_its_domain_in_words(files: Files) -> None:
    audit = files.problem("return x.softmax(1)", "torch.randn(8, 32)").audit
    assert not audit.faults
    assert audit.modeless
    assert "A >= 1 and B >= 1" in audit.domain
    norm = files.problem(
        "return self.norm(x)", "torch.rand(8, 4)", init="self.norm = nn.BatchNorm1d(4)"
    )
    assert not norm.audit.faults
    assert not norm.audit.modeless
    assert "norm.weight, norm.bias" in norm.audit.notes[0]  # all 1, all 0
    assert "not tried in evaluation mode" in norm.audit.notes[1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", "no Model and no get_inputs and no get_init_inputs"),
        (
            "class Model: pass\ndef get_inputs(): return []\n"
            "def get_init_inputs(): return []",
            "no nn.Module",
        ),
        (
            "from torch import nn\nclass Model(nn.Module): pass\n"
            "def get_inputs(): return 3\ndef get_init_inputs(): return []",
            "no list of arguments",
        ),
        (
            "from torch import nn\nclass Model(nn.Module): pass\n"
            "def get_inputs(): return [2.0]\ndef get_init_inputs(): return []",
            "gives no tensor",
        ),
    ],
)
def test_a_file_that_is_not_of_the_form_says_what_it_lacks(
    tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "odd.py"
    path.write_text(text)
    with pytest.raises(UsageError, match=says):
        Form(path, CPU)


def limit_oracles(monkeypatch: pytest.MonkeyPatch, elements: int) -> None:
    """Have oracles be made at once of so many elements at most."""
    limits = replace(backend_of(CPU).limits, oracle_elements=elements)
    monkeypatch.setattr(backend_of(CPU), "limits", limits)


def test_a_shape_too_large_for_its_oracle_has_a_smaller_one_in_its_place(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_oracles(monkeypatch, 1 << 10)
    made = files.problem("return x.relu()", "torch.rand(64, 256) - 0.5")
    assert made.reference is not None
    assert not made.audit.faults
    assert made.reference.home == {"A": 32, "B": 32}
    assert "too large" in made.audit.notes[0]
    fixed = files.problem(
        "return self.linear(x[:1])", "torch.rand(64, 2048)",
        init="self.linear = nn.Linear(2048, 2)",
    )  # fmt: skip
    assert "no smaller shape" in fixed.audit.faults[0]


def test_rows_of_a_large_shape_are_judged(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_oracles(monkeypatch, 1 << 10)
    reference = files.reference("return x.relu()", "torch.rand(64, 256) - 0.5")
    case = reference.case("form", 5, whole=True)
    claims = claims_of(reference)
    setting = setting_of("cpu", SIZE_BUDGETS["cpu"], CLASSES)

    def says(function: Callable[[Tensor], Tensor]) -> str | None:
        kernel = bound(function, reference, "it", claims)
        judge = CandidateEvaluator(kernel, setting, reference)
        failure = judge.judge(case, Depth.BASE).failure
        return None if failure is None else failure.contract

    assert says(torch.relu) is None
    assert says(lambda x: x if x.shape == (64, 256) else x.relu()) == "K-VAL-01"
    assert says(lambda x: x.relu()[:, :5]) == "K-MET-01"
