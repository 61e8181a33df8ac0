"""Gradients of functions of autograd on a GPU: right ones pass, each faulty one not."""

import pytest

from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.witnesses.backward import gradients
from kfuzz.contracts.witnesses.witness import Witness
from kfuzz.core.budget import Depth
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Verdict
from kfuzz.evaluation.drawing import search_round, strategy_of
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.features.lab.grade.calibrating import passes_functional
from tests.helpers.budgets import SIZE_BUDGETS

pytestmark = [pytest.mark.gpu]

WITNESSES = {w.kernel: w for w in gradients.WITNESSES}
CASES = 100
# One argument alone is asked for on a sixteenth of the cases.
MORE = 400


def search(witness: Witness) -> tuple[list[CaseReport], list[str]]:
    """Judge cases until one is charged; return the reports and what was charged."""
    made = witness.load()
    classes = frozenset(CLASSES)
    evaluator = Evaluator(made, setting_of("cuda:0", SIZE_BUDGETS["cuda"], classes))
    strategy = strategy_of(made, SIZE_BUDGETS["cuda"])
    assert strategy is not None
    reports: list[CaseReport] = []
    attributed: list[str] = []
    most = MORE if witness.contract else CASES

    def once(case: Case) -> CaseReport | None:
        if attributed or len(reports) >= most:
            return None
        report = evaluator.judge(case, Depth.SEARCH)
        reports.append(report)
        if report.failure is not None:
            failure = report.failure
            drawn = {n: (s.shape, s.strides, s.dtype, s.fill)
                     for n, s in case.tensors.items()}  # fmt: skip
            text = f"{failure.contract} {failure.detail}: {failure.message}"
            attributed.append(f"{text} {drawn} {case.scalars}")
        assert report.error is None, report.error
        return report

    search_round(strategy, once, cases=most, seed_value=5)
    return reports, attributed


@pytest.mark.parametrize("name", [n for n, w in WITNESSES.items() if w.conforming])
def test_a_right_gradient_is_never_charged(name: str) -> None:
    witness = WITNESSES[name]
    assert passes_functional(witness, device="cuda")
    reports, attributed = search(witness)
    assert not attributed, attributed
    sure = [r for r in reports if r.verdicts.get("K-GRD-01") is Verdict.CONFORMS]
    assert len(sure) > len(reports) / 3, [r.unsupported for r in reports][:5]


@pytest.mark.parametrize("name", [n for n, w in WITNESSES.items() if w.contract])
def test_a_faulty_gradient_is_charged(name: str) -> None:
    witness = WITNESSES[name]
    assert passes_functional(witness, device="cuda")
    reports, attributed = search(witness)
    assert attributed, f"{len(reports)} cases, none charged"
    assert attributed[0].startswith("K-GRD-01"), attributed
