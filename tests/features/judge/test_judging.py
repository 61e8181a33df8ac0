"""Verdicts on candidates, which run in the tests' own process here."""

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kfuzz.core.budget import Budget
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import State, Verdict
from kfuzz.features.judge.candidate import FILE, Recording
from kfuzz.features.judge.kernelbench.reference import Reference
from kfuzz.features.judge.outcome import Judgement
from kfuzz.features.judge.procedure import JudgeConfig, Judging
from kfuzz.features.judge.sandbox.contain import Limits
from kfuzz.features.judge.sandbox.meeting import Perturbations
from kfuzz.features.judge.sandbox.wire import WORDS, leaves
from kfuzz.features.judge.verb import judgement_document, judgement_lines
from kfuzz.store import files as tensorfile
from tests.features.judge.judging import problem

Functions = dict[str, Any]


class Here:
    """A candidate without a child."""

    weights = ""
    same_names = False
    late = False
    stalls = 0

    def __init__(self, path: Path, reference: Reference) -> None:
        self._path = path
        self._reference = reference
        self.recording = Recording()
        self.kernel = SimpleNamespace(
            words={name: () for name in WORDS},
            perturbations=Perturbations(),
        )  # fmt: skip
        self.sandbox = SimpleNamespace(
            containment={}, cut_off=0,
            prepare=lambda children: None, fresh=self.renew,
        )  # fmt: skip
        self.renew()

    def __call__(self, *tensors: Tensor) -> Any:
        with torch.no_grad():
            made = leaves(self._model(*self._reference.form.arguments(tensors)))
        returned = made if len(made) > 1 else made[0]
        self.recording.take(returned)
        return returned

    def begin(self, case: Case) -> None:
        pass

    def renew(self) -> None:
        made: Functions = {}
        exec(self._path.read_text(), made)
        self._model: nn.Module = made["ModelNew"](*self._reference.form.init)

    def close(self) -> None:
        pass


class Files:
    """Writes a reference and candidates, and judges them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def judged(
        self,
        reference: str,
        candidate: str,
        inputs: str,
        *,
        takes: str = "x",
        cases: int = 20,
        **more: Any,
    ) -> Judgement:
        self._count += 1  # a reference is imported once
        paths = [
            self._folder / f"{name}_{self._count}.py"
            for name in ("reference", "candidate")
        ]
        forms = (("Model", reference), ("ModelNew", candidate))
        for path, (name, forward) in zip(paths, forms, strict=True):
            made = problem(
                forward, inputs, name=name, takes=takes, init="self.memo = {}"
            )
            path.write_text(made)
        config = JudgeConfig(
            reference=paths[0], candidate=paths[1], root=self._folder,
            corpus=self._folder / "corpus", seed=7, device="cpu",
            budget=Budget(max_time=60.0, max_cases=cases, max_findings=1), **more,
        )  # fmt: skip

        def opened(
            path: Path, reference: Reference, *, backend: str, limits: Limits,
            hidden: Sequence[Path],
        ) -> Here:  # fmt: skip
            return Here(path, reference)

        judging = Judging(config, opened=opened)
        for _ in judging.events(stop=threading.Event()):
            pass
        return judging.judgement()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


# What is computed, in two ways that rely on the inputs' structure: right, and wrong.
STRUCTURED = {
    "triangular": (
        "a, b", "torch.rand(6, 6).tril(), torch.rand(6, 6).tril()",
        "return (a @ b).tril()",
        "return sum(a[:, k:k+1] * b[k:k+1] * (torch.arange(len(a))[:, None] >= k) "
        "for k in range(len(a)))",
        "return (a.tril(-1) @ b).tril()",
    ),
    "one-hot": (
        "a, b", "torch.randn(12, 6), F.one_hot(torch.randint(0, 6, (12,)), 6).float()",
        "return -(b * F.log_softmax(a, 1)).sum(1)",
        "return -F.log_softmax(a, 1).gather(1, b.argmax(1)[:, None])[:, 0]",
        "return -(b.mul(0.99) * F.log_softmax(a, 1)).sum(1)",
    ),
    "permutation": (
        "a, b", "torch.rand(12, 6), torch.randperm(12)",
        "return torch.zeros_like(a).index_add(0, b, a * 2)",
        "return (a + a)[b.argsort()]",
        "return (a + a)[b]",
    ),
    "probabilities": (
        "a, b", "torch.rand(8, 6).softmax(1), torch.rand(8, 6).softmax(1)",
        "return F.kl_div(a.log(), b, reduction='batchmean')",
        "return (b * (b.log() - a.log())).sum() / len(a)",
        "return (b * (b.log() - a.log())).mean()",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", STRUCTURED)
def test_a_candidate_may_rely_on_the_structure_of_its_inputs(
    name: str, files: Files
) -> None:
    takes, inputs, reference, honest, wrong = STRUCTURED[name]
    # The first 19 are at the benchmarked shape.
    made = files.judged(reference, honest, inputs, takes=takes, cases=40)
    assert made.verdict is Verdict.CONFORMS, (made.reason, made.findings)
    assert made.audit.inputs
    assert made.coverage.elsewhere
    assert any("inputs: " in line for line in judgement_lines(made))
    made = files.judged(reference, wrong, inputs, takes=takes)
    assert made.verdict is Verdict.VIOLATES


def test_an_interval_that_only_random_numbers_keep_may_not_be_relied_on(
    files: Files,
) -> None:
    made = files.judged("return x.abs()", "return x + 0", "torch.rand(8, 16)")
    assert made.verdict is Verdict.VIOLATES
    assert not made.audit.inputs
    kept = files.judged(
        "return x.sqrt() + 1", "return x.abs() ** 0.5 + 1", "torch.rand(8, 16)"
    )
    assert kept.verdict is Verdict.CONFORMS, kept.reason
    assert "the reference does not take others" in kept.audit.inputs[0]


def test_sorted_numbers_within_an_interval_stay_both(files: Files) -> None:
    """Also those that several draws of the file put beyond the first one's end."""
    log = "return torch.log(x) + 1"
    made = files.judged(log, log, "torch.rand(4, 24).cumsum(1)")
    assert made.verdict is Verdict.CONFORMS, made.reason
    said = "\n".join(made.audit.inputs)
    assert "sorted along dimension 1, rising" in said
    assert "the reference does not take others" in said


def test_what_is_wrong_about_nan_alone_is_told_apart(files: Files) -> None:
    relu = ("return x.relu()", "return torch.where(x > 0, x, 0.0)")
    made = files.judged(*relu, "torch.randn(8, 16)")
    assert made.verdict is Verdict.VIOLATES
    assert made.findings[0].signature.contract == "C-EXC-01"
    assert made.on_finite is Verdict.CONFORMS
    assert "conforms on finite inputs, breaks on NaN" in made.reason
    assert judgement_document(made)["on_finite"] == "conforms"
    assert any("--nonfinite undefined" in line for line in judgement_lines(made))
    left_out = files.judged(
        *relu, "torch.randn(8, 16)", claims={"nonfinite": "undefined"}
    )
    assert left_out.verdict is Verdict.CONFORMS


def test_what_is_wrong_about_numbers_too_is_charged_with_that(files: Files) -> None:
    made = files.judged(
        "return x.relu()",
        "return torch.where(x > 0, x, torch.where(x < -20, 1.0, 0.0))",
        "torch.randn(8, 16)",
        cases=60,
    )
    assert made.verdict is Verdict.VIOLATES
    assert made.on_finite is None
    assert "NaN" not in made.reason


@pytest.mark.slow
def test_a_candidate_that_refuses_most_values_is_not_said_to_conform(
    files: Files,
) -> None:
    raising = "raise ValueError('strange')\n        return x.softmax(1)"
    most = "float(x.abs().max())"
    refuser = f"if not 1e-9 < {most} <= min(3, 4 * float(x.abs().median())): {raising}"
    made = files.judged("return x.softmax(1)", refuser, "torch.rand(8, 16)")
    assert made.verdict is Verdict.UNDER_SPECIFIED
    assert "raised on" in made.reason
    # It has to take what the file's own values are, scaled.
    refuser = f"if not 0.1 < float(x.abs().max()): {raising}"
    made = files.judged("return x.softmax(1)", refuser, "torch.rand(8, 16)")
    assert made.verdict is Verdict.VIOLATES


def test_a_memo_that_looks_at_a_part_of_its_arguments_is_found(files: Files) -> None:
    memo = "\n        ".join(
        (
            "key = (x.shape, *x.flatten()[:4].tolist(), round(float(x.sum()), 2))",
            "if key not in self.memo: self.memo[key] = x @ y",
            "return self.memo[key].clone()",
        )
    )
    made = files.judged(
        "return x @ y", memo, "torch.randn(8, 16), torch.randn(16, 4)", takes="x, y"
    )
    assert made.verdict is Verdict.VIOLATES
    assert made.findings[0].signature.contract == "K-REF-01"


def test_the_benchmarked_shape_is_kept_where_no_other_is_asked_for(
    files: Files,
) -> None:
    made = files.judged(
        "return x.softmax(1)", "return x.softmax(1) * 1.01", "torch.rand(6, 9)",
        benchmarked_only=True,
    )  # fmt: skip
    assert made.verdict is Verdict.VIOLATES
    assert made.findings[0].case.tensors["x"].shape == (6, 9)
    elsewhere = files.judged(
        "return x.softmax(1)", "return x.softmax(1) * 1.01", "torch.rand(6, 9)"
    )
    assert elsewhere.findings[0].case.tensors["x"].numel < 54


def test_nested_results_are_judged_each(files: Files) -> None:
    reference = "return x.sum(1), (x * 2, {'b': x.amax(1), 'a': x - 1})"
    right = "return x.sum(1), (x + x, {'a': x - 1, 'b': x.max(1).values})"
    made = files.judged(reference, right, "torch.rand(6, 9)")
    assert made.verdict is Verdict.CONFORMS, made.reason
    wrong = right.replace("x.max", "x.min")
    made = files.judged(reference, wrong, "torch.rand(6, 9)")
    assert made.verdict is Verdict.VIOLATES
    assert made.findings[0].failure.output == "y3"


@pytest.mark.parametrize(
    ("wrong_where", "contract"),
    [("x.numel() > 100", "K-VAL-01"), ("x.shape[1] % 16 != 0", "C-CMP-03")],
)
def test_shapes_excuse_nothing_that_is_wrong_at_the_benchmarked_one(
    wrong_where: str, contract: str, files: Files
) -> None:
    made = files.judged(
        "return torch.relu(x)", f"return torch.relu(x) + ({wrong_where}) * 0.1",
        "torch.randn(8, 16)", cases=60,
    )  # fmt: skip
    assert {f.signature.contract for f in made.findings} == {contract}


def test_what_is_wrong_in_few_of_many_calls_is_kept_with_what_came_back(
    files: Files, tmp_path: Path
) -> None:
    """A process of its own does not show it again; inputs and result do."""
    lie = "self.memo['n'] = n = self.memo.get('n', 0) + 1; y = x.relu(); "
    lie += "return y + 1 if n == 60 else y"
    made = files.judged("return x.relu()", lie, "torch.randn(4, 6)")
    assert made.verdict is Verdict.VIOLATES, made.reason
    [found] = [f for f in made.findings if f.state is State.WITNESSED]
    assert found.signature.contract == "C-ORD-02"
    assert "right on the same input at another time" in made.reason
    stored = Path(made.paths[found.id])
    results = tensorfile.load((stored / FILE).read_bytes(), where=FILE)["y"]
    x = torch.frombuffer(bytearray(found.case.data.values), dtype=torch.float32)
    y = torch.frombuffer(bytearray(results.data), dtype=torch.float32)
    assert torch.equal(y, x.relu() + 1)


def test_what_one_kind_of_call_makes_of_its_input_is_found(files: Files) -> None:
    lie = "y = x.relu(); x.untyped_storage().resizable() and x.zero_(); return y"
    made = files.judged("return x.relu()", lie, "torch.randn(4, 6)")
    assert made.verdict is Verdict.VIOLATES, made.reason
    assert "overwrites its input x" in made.reason


def test_a_candidate_may_change_what_the_reference_changes(files: Files) -> None:
    same = "return x.relu_() * 0.5"
    made = files.judged(same, same, "torch.randn(4, 6)")
    assert not made.findings, made.reason
