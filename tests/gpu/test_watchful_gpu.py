"""Stored findings replayed before a search on a GPU, and impostors tried there."""

from pathlib import Path

import pytest
import torch

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.classes import CLASSES
from kfuzz.core.budget import Depth
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.evaluation import baselines
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from tests.e2e.project import HEADER, RIGHT, WRONG, Project
from tests.helpers.budgets import SIZE_BUDGETS

pytestmark = pytest.mark.gpu


def test_a_stored_finding_is_replayed_where_it_was_found(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("kernels.py", HEADER + WRONG + RIGHT)
    words = ["kernels.py", "--device", "cuda"]
    first = project.run(*words, "--max-findings", "1")
    assert first.code == 1, first.err
    [found] = first.findings("wrong")
    again = project.run(*words, "--replay", cases=1)
    assert again.code == 1, again.err
    [replayed] = again.document["replayed"]
    told = (replayed["id"], replayed["outcome"], replayed["failures"])
    assert told == (found["id"], "FAILS", 3), again.document
    assert found["id"] in [f["id"] for f in again.findings("wrong")]
    assert again.findings("right") == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_judgement_refuses_impostors_on_a_gpu(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "is_tried", lambda case: not case.pinned)
    bound = kernel(ops.exp, name=f"exp_{dtype}")(torch.exp)
    evaluator = Evaluator(bound, setting_of("cuda:0", SIZE_BUDGETS["cuda"], CLASSES))

    def judged(seed: int) -> dict[str, bool]:
        spec = TensorSpec((8, 33), ("d0", "d1"), dtype, fill=Fill("randn", seed))
        report = evaluator.judge(Case({"x": spec}), Depth.SEARCH)
        assert report.failure is None, report.failure
        assert report.error is None, report.error
        return report.baselines

    first = {"zeros": True, "NaN": True, "a copy of an input": True}
    assert judged(1) == first
    assert judged(2) == {**first, "the results of the case before": True}
