"""What users bring is tried on the host, and held against the kernel where it runs."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from kfuzz import strategies as ks
from kfuzz.contracts import Operator
from kfuzz.contracts.binding import fit
from kfuzz.core.budget import SizeBudget
from kfuzz.core.errors import BindingError
from kfuzz.core.verdict import CaseReport, Failure, Kind, Verdict
from kfuzz.engine.search.schedule import Bindings

FINE = CaseReport({"K-VAL-01": Verdict.CONFORMS})
ELSEWHERE = CaseReport({}, oracle_raised="RuntimeError: two devices, cuda:0 and cpu")
OTHER_SHAPE = CaseReport({}, failure=Failure("K-MET-01", Kind.WRONG_SHAPE, "y is (1,)"))
OTHER_VALUE = CaseReport({}, failure=Failure("K-VAL-01", Kind.VALUE, "y[0] = 3"))


def searched(oracle: Any, *reports: CaseReport) -> Any:
    """Return a kernel bound to an operator, with what its runner reports."""
    operator = Operator("own", inputs={"x": ks.tensors("M N")}, oracle=oracle)
    bound = fit(
        operator, torch.clone, {}, name="own", module=__name__, line=1, top_level=True
    )
    left = list(reports)
    runner = SimpleNamespace(judge=lambda case, depth: left.pop(0))
    target = SimpleNamespace(reference="")
    return SimpleNamespace(
        node_id="own",
        loaded=SimpleNamespace(kernel=bound, target=target),
        runner=runner,
        budget=SizeBudget(4096, 64),
        left=left,
    )


def doubled(x: Tensor) -> Tensor:
    return 2 * x


def constant(x: Tensor) -> Tensor:
    return torch.zeros_like(x)


def beside(x: Tensor) -> Tensor:
    raise RuntimeError("Expected all tensors to be on the same device")


def test_an_oracle_for_another_device_is_judged_where_the_kernel_runs() -> None:
    with pytest.raises(BindingError, match="same device"):
        Bindings([searched(beside)], on_host=True)
    fine = searched(beside, FINE)
    Bindings([fine], on_host=False).compare(fine)
    assert fine.left == []
    broken = searched(beside, *[ELSEWHERE] * 3)
    with pytest.raises(BindingError, match="where the kernel runs: RuntimeError: two"):
        Bindings([broken], on_host=False).compare(broken)


@pytest.mark.parametrize(
    ("oracle", "report", "what"),
    [
        (doubled, OTHER_SHAPE, "different shapes in each of 3 small cases"),
        (constant, OTHER_VALUE, "the oracle returns a constant"),
    ],
)
def test_all_cases_have_to_differ(oracle: Any, report: CaseReport, what: str) -> None:
    broken = searched(oracle, report, report, report)
    with pytest.raises(BindingError, match=what):
        Bindings([broken], on_host=True).compare(broken)
    fine = searched(oracle, report, report, FINE)
    Bindings([fine], on_host=True).compare(fine)
    assert fine.left == []


def test_a_wrong_value_is_the_kernels_where_the_oracle_is_no_constant() -> None:
    wrong = searched(doubled, OTHER_VALUE)
    Bindings([wrong], on_host=True).compare(wrong)
    assert wrong.left == []


def test_workers_of_one_kernel_may_compare_at_once() -> None:
    """The second one does so while the first has not ended."""
    fine = searched(beside, FINE, FINE)
    bindings = Bindings([fine], on_host=False)
    judge = fine.runner.judge

    def beside_another(case: Any, depth: Any) -> CaseReport:
        report: CaseReport = judge(case, depth)
        if fine.left:
            bindings.compare(fine)
        return report

    fine.runner.judge = beside_another
    bindings.compare(fine)
    assert fine.left == []
