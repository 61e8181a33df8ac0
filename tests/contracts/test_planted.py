"""Faults that are planted in torch's own kernels, each on the case that shows it."""

import pytest
import torch

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.classes import ATTRIBUTION, CLASSES
from kfuzz.contracts.operators import OPERATORS
from kfuzz.contracts.witnesses.roster import Entry, roster, unplanted
from kfuzz.core.budget import Depth
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import CaseReport, Role, Verdict
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from tests.helpers.budgets import SIZE_BUDGETS
from tests.helpers.functional import passes_functional
from tests.helpers.judged_cases import pinned

ENTRIES = {e.witness.kernel: e for e in roster("cpu")}
INCIDENTS = {
    "incident_precision_coercion": "C-PRC-01",
    "incident_reward_hacking": "C-CMP-03",
    "incident_silent_index": "C-EXC-02",
}


def row(values: list[float], dtype: str = "float32") -> dict[str, TensorSpec]:
    return {"x": pinned([values], "d0 d1", dtype)}


def judged(kernel: BoundKernel, case: Case) -> CaseReport:
    classes = [c.id for c in ATTRIBUTION]
    evaluator = Evaluator(kernel, setting_of("cpu", SIZE_BUDGETS["cpu"], classes))
    return evaluator.judge(case, Depth.FULL)


def case_of(entry: Entry, tensors: dict[str, TensorSpec], config: int = 0) -> Case:
    scalars = {n: p.default for n, p in entry.load().operator.scalars.items()}
    return Case(tensors, scalars, config=config)


SHOWN = [
    ("wrong_block_in_relu", row([1.0, 2.0, 3.0]), 1, "C-CMP-02"),
    ("flushes_in_relu", row([1e-40]), 0, "C-PRC-03"),
    ("flushes_in_exp", row([-12.0], "float16"), 0, "C-PRC-03"),
    ("epsilon_in_copy", row([1.0], "bfloat16"), 0, "C-PRC-04"),
    ("epsilon_in_sum", row([1.0, 2.0], "bfloat16"), 0, "C-PRC-04"),
    ("falling_in_amax", row([1.0, 2.0], "float16"), 0, "C-ORD-01"),
    ("falling_in_argmax", row([1.0, 2.0]), 0, "C-ORD-01"),
]


@pytest.mark.parametrize(("name", "tensors", "config", "contract"), SHOWN)
def test_a_planted_fault_passes_allclose_and_is_charged_to_its_class(
    name: str, tensors: dict[str, TensorSpec], config: int, contract: str
) -> None:
    entry = ENTRIES[name]
    assert entry.witness.contract == contract
    report = judged(entry.load(), case_of(entry, tensors, config))
    assert report.failure is not None, report.verdicts
    assert report.failure.contract == contract, report.failure.message
    assert passes_functional(entry.witness)


@pytest.mark.parametrize("config", [0, 1])
def test_one_configuration_of_two_is_right(config: int) -> None:
    entry = ENTRIES["wrong_block_in_relu"]
    report = judged(entry.load(), case_of(entry, row([1.0, 2.0, 3.0]), config))
    assert (report.failure is None) == (config == 0)


@pytest.mark.parametrize("name", ["relu", "amax", "softmax"])
def test_a_kernel_in_a_library_of_its_own_leaves_nothing_to_torch(name: str) -> None:
    entry = ENTRIES[f"library_{name}"]
    case = case_of(entry, row([1.0, 2.0, 3.0]))
    report = judged(entry.load(), case)
    assert report.failure is None, report.failure
    for contract in ("K-OWN-01", "C-CMP-02"):
        assert report.verdicts[contract] is Verdict.CONFORMS
    left = ENTRIES[f"falls_back_in_{name}"]
    failure = judged(left.load(), case_of(left, row([1.0, 2.0, 3.0]))).failure
    assert failure is not None
    assert failure.contract == "K-OWN-01"


def test_what_a_kernel_in_a_library_raises_is_an_exception_of_the_call() -> None:
    entry = ENTRIES["library_embedding"]
    weight, index = torch.zeros(3, 2), torch.tensor([3])
    with pytest.raises(IndexError):
        entry.load()(weight, index, BLOCK=64)


def test_every_contract_has_a_faulty_kernel_or_says_why_it_has_none() -> None:
    violating = {
        f"{e.witness.contract}/{e.load().operator.name}"
        for e in ENTRIES.values()
        if e.role is Role.VIOLATING
    }
    reasons = unplanted("cpu")
    for operator in OPERATORS.values():
        for contract in CLASSES.values():
            if contract.on_request:
                continue
            if contract.applies(operator, operator.defaults):
                at = f"{contract.id}/{operator.name}"
                assert at in violating or reasons.get(at), at


def test_every_class_that_depends_on_a_claim_has_a_right_kernel_that_makes_it() -> None:
    claiming = {
        (contract, e.load().operator.name)
        for e in ENTRIES.values()
        if e.role is Role.CONFORMING
        for contract, claimed in (
            ("K-OWN-01", e.load().declaration.own_kernels_only),
            ("C-CMP-02", bool(e.load().declaration.configs)),
        )
        if claimed
    }
    wanted = {(c, o) for c in ("K-OWN-01", "C-CMP-02") for o in OPERATORS}
    assert claiming >= wanted


def test_the_incidents_are_calibrated_with() -> None:
    found = {n: ENTRIES[n].witness.contract for n in INCIDENTS}
    assert found == INCIDENTS
    assert all(ENTRIES[n].role is Role.VIOLATING for n in INCIDENTS)
