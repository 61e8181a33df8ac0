"""C-EXC-02: what becomes of indices out of bounds, and what it hides."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops
from kfuzz.contracts.classes import CLASSES
from kfuzz.core.budget import Depth
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import CaseReport, Kind, Verdict
from kfuzz.engine.workers.runner import Runner
from kfuzz.evaluation.worker import Worker
from tests.helpers import judged_cases
from tests.helpers.judged_cases import bench_of, pinned

CONFORMS = Verdict.CONFORMS


def lookup(*values: int) -> Case:
    table = pinned([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "V D")
    return Case({"weight": table, "indices": pinned(values, "d0", below="V")})


def judged(
    function: Callable[..., Any],
    case: Case,
    operator: Any = ops.embedding,
    **claims: Any,
) -> CaseReport:
    return judged_cases.judged(operator, function, case, classes=CLASSES, **claims)


def refusing(weight: Tensor, indices: Tensor) -> Tensor:
    return torch.nn.functional.embedding(indices, weight)


def wrapping(weight: Tensor, indices: Tensor) -> Tensor:
    return weight[indices % weight.shape[0]]


def clamping(weight: Tensor, indices: Tensor) -> Tensor:
    return weight[indices.clamp(0, weight.shape[0] - 1)]


def zeroing(weight: Tensor, indices: Tensor) -> Tensor:
    bad = (indices < 0) | (indices >= weight.shape[0])
    return clamping(weight, indices).masked_fill(bad.unsqueeze(-1), 0.0)


@pytest.mark.parametrize("value", [-1, 3, 4, -(2**63), 2**63 - 1])
def test_a_refusal_keeps_the_promise_to_raise(value: int) -> None:
    report = judged(refusing, lookup(1, value))
    assert report.failure is None
    assert report.refusal is None
    assert report.verdicts == {"C-EXC-02": CONFORMS}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "returns although indices[1] = 3 is not below V = 3"),
        (-1, "returns although indices[1] = -1 is negative (V = 3)"),
    ],
)
def test_a_bad_index_taken_is_charged(value: int, message: str) -> None:
    report = judged(wrapping, lookup(1, value))
    assert report.failure is not None
    assert report.failure.contract == "C-EXC-02"
    assert report.failure.kind is Kind.INDEX_ACCEPTED
    assert report.failure.output == "indices"
    assert report.failure.index == (1,)
    assert report.failure.message == message
    # No value is promised there: nothing else is said.
    assert report.verdicts == {
        "K-LIV-01": CONFORMS, "K-MEM-01": CONFORMS, "K-MEM-03": CONFORMS,
        "C-EXC-02": Verdict.VIOLATES,
    }  # fmt: skip


def taking(weight: Tensor, indices: Tensor) -> Tensor:
    """Give zeros at -1, and raise beyond the last row."""
    return weight[indices.clamp(min=0)] * (indices >= 0).unsqueeze(-1)


@pytest.mark.parametrize(("value", "fails"), [(-1, False), (3, True)])
def test_what_a_reference_itself_takes_need_not_raise(value: int, fails: bool) -> None:
    inputs = {"weight": ks.tensors("V D"), "indices": ks.indices("*", below="V")}
    operator = kfuzz.reference(taking, inputs, name="rows_or_zeros")
    report = judged(clamping, lookup(1, value), operator)
    assert (report.failure is not None) is fails
    assert ("C-EXC-02" in report.verdicts) is fails


@pytest.mark.parametrize("kernel", [wrapping, refusing])
def test_rows_without_elements_may_be_taken_at_any_index(
    kernel: Callable[[Tensor, Tensor], Tensor],
) -> None:
    empty = TensorSpec((1, 0), ("V", "D"), "float32", values=b"")
    report = judged(kernel, lookup(1).with_tensor("weight", empty))
    assert report.failure is None


def test_valid_indices_say_nothing_about_bad_ones() -> None:
    report = judged(wrapping, lookup(0, 2, 2))
    assert report.failure is None
    assert "C-EXC-02" not in report.verdicts
    assert report.verdicts["K-VAL-01"] is CONFORMS


def test_overwriting_an_input_is_charged_before_the_index() -> None:
    def spoiling(weight: Tensor, indices: Tensor) -> Tensor:
        indices.clamp_(0, weight.shape[0] - 1)
        return weight[indices]

    report = judged(spoiling, lookup(1, 7))
    assert report.failure is not None
    assert report.failure.contract == "K-MEM-03"


@pytest.mark.parametrize(
    ("policy", "keeps", "breaks"),
    [("clamp", clamping, wrapping), ("zero", zeroing, clamping)],
)
def test_declared_results_are_held_against_the_declaration(
    policy: str, keeps: Callable[..., Tensor], breaks: Callable[..., Tensor]
) -> None:
    case = lookup(1, 7, -1)
    report = judged(keeps, case, out_of_bounds=policy)
    assert report.failure is None
    assert report.verdicts["C-EXC-02"] is CONFORMS
    assert report.verdicts["K-VAL-01"] is CONFORMS
    report = judged(breaks, case, out_of_bounds=policy)
    assert report.failure is not None
    assert report.failure.contract == "C-EXC-02"
    assert report.failure.kind is Kind.VALUE
    assert f'is not below V = 3, "{policy}" is declared' in report.failure.message
    # Raising is no way to clamp.
    report = judged(refusing, case, out_of_bounds=policy)
    assert report.failure is not None
    assert (report.failure.contract, report.failure.kind) == ("K-LIV-01", Kind.RAISES)


@pytest.mark.parametrize("function", [refusing, wrapping])
def test_an_undefined_policy_is_not_judged(function: Callable[..., Tensor]) -> None:
    report = judged(function, lookup(1, 7), out_of_bounds="undefined")
    assert report.failure is None
    assert report.refusal is None
    assert not {"C-EXC-02", "K-VAL-01"} & set(report.verdicts)
    report = judged(function, lookup(1, 2), out_of_bounds="undefined")
    assert report.verdicts["K-VAL-01"] is CONFORMS


def test_a_lost_sign_of_zero_is_a_wrong_value() -> None:
    def added(weight: Tensor, indices: Tensor) -> Tensor:
        return weight[indices] + 0.0

    table = pinned([[-0.0, 1.0]], "V D")
    case = Case({"weight": table, "indices": pinned([0], "d0", below="V")})
    report = judged(added, case)
    assert report.failure is not None
    assert report.failure.message == "y[0, 0] = 0, expected -0"


def test_an_ignored_target_is_no_bad_index() -> None:
    def mean_loss(logits: Tensor, target: Tensor, ignore_index: int = -100) -> Tensor:
        return torch.nn.functional.cross_entropy(
            logits, target, ignore_index=ignore_index
        )

    def case(target: int) -> Case:
        tensors = {
            "logits": pinned([[0.0, 1.0]], "N C"),
            "target": pinned([target], "N", below="C"),
        }
        return Case(tensors, {"ignore_index": 5})

    ignored = judged(mean_loss, case(5), ops.cross_entropy)
    assert ignored.verdicts["K-VAL-01"] is CONFORMS
    assert "C-EXC-02" not in ignored.verdicts
    refused = judged(mean_loss, case(2), ops.cross_entropy)
    assert refused.verdicts == {"C-EXC-02": CONFORMS}


def test_refusing_indices_of_another_rank_is_a_refusal() -> None:
    def flat(weight: Tensor, indices: Tensor) -> Tensor:
        if indices.dim() != 1:
            raise ValueError("indices must be flat")
        return weight[indices]

    table = pinned([[1.0]], "V D")
    case = Case({"weight": table, "indices": pinned([[0]], "d0 d1", below="V")})
    report = judged(flat, case)
    assert report.failure is None
    assert report.refusal == "rank 2 of indices"


def test_a_child_whose_device_is_lost_is_not_used_again() -> None:
    """A device-side assertion is how a GPU refuses an index."""
    worker = Worker()
    evaluator = bench_of(ops.embedding, refusing)
    worker.adopt(evaluator)
    message = {"do": "judge", "case": lookup(9), "depth": Depth.FULL}
    assert worker(message)["spent"] is False  # on the CPU an exception is harmless

    class Peer:
        lost, compiled = False, 0.0

        def wait(self, limit: float, **limits: float) -> dict[str, Any]:
            return {**worker(message), "spent": True}

        def discard(self) -> None:
            self.lost = True

    peer = Peer()
    runner = Runner(None, None, None)  # type: ignore[arg-type]
    report = runner._take(peer, 1.0, established=True)  # type: ignore[arg-type]
    assert report.verdicts == {"C-EXC-02": CONFORMS}
    assert peer.lost
