"""nonfinite="mask" and "raise": what becomes of NaN and infinities in the data."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.suite import contracts_of
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import CaseReport, Kind, Verdict
from tests.helpers.judged_cases import judged, pinned

CONFORMS, VIOLATES = Verdict.CONFORMS, Verdict.VIOLATES
INF, NAN = float("inf"), float("nan")
SPOILT = (1.0, NAN, -2.0, INF, 3.0, -INF)


def of(*values: float) -> Case:
    return Case({"x": pinned([values], "d0 d1")}, {"dim": -1})


def summed(x: Tensor, dim: int = -1) -> Tensor:
    return x.sum(dim)


def masking(x: Tensor, dim: int = -1) -> Tensor:
    return torch.nan_to_num(x, 0.0, 0.0, 0.0).sum(dim)


def half_masking(x: Tensor, dim: int = -1) -> Tensor:
    return torch.nan_to_num(x, 0.0).clamp(-1e30, 1e30).sum(dim)


def without_tail(x: Tensor, dim: int = -1) -> Tensor:
    return x[..., :-1].sum(dim)


def refusing(x: Tensor, dim: int = -1) -> Tensor:
    if not bool(torch.isfinite(x).all()):
        raise FloatingPointError("not finite")
    return x.sum(dim)


def outcome(report: CaseReport) -> tuple[str, Kind] | None:
    failure = report.failure
    return None if failure is None else (failure.contract, failure.kind)


def test_masked_numbers_count_as_zero() -> None:
    report = judged(ops.sum, masking, of(*SPOILT), nonfinite="mask")
    assert report.failure is None
    assert report.verdicts["C-EXC-01"] is CONFORMS
    # The same result breaks the promise to propagate.
    assert outcome(judged(ops.sum, masking, of(*SPOILT))) == (
        "C-EXC-01",
        Kind.NAN_MISSING,
    )


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [(summed, Kind.NAN_UNEXPECTED), (half_masking, Kind.VALUE)],
)
def test_what_is_not_masked_is_charged(
    kernel: Callable[..., Tensor], kind: Kind
) -> None:
    case = of(*SPOILT) if kernel is summed else of(1.0, INF)
    report = judged(ops.sum, kernel, case, nonfinite="mask")
    assert outcome(report) == ("C-EXC-01", kind)
    assert report.failure is not None
    assert '"mask" is declared' in report.failure.message


def test_the_declaration_that_admits_it_is_named() -> None:
    report = judged(ops.sum, masking, of(*SPOILT))
    assert outcome(report) == ("C-EXC-01", Kind.NAN_MISSING)
    assert report.failure is not None
    assert report.failure.cause.startswith('declare nonfinite="undefined" if')
    # Such a case is drawn no more, but a stored one is replayed.
    report = judged(ops.sum, masking, of(*SPOILT), nonfinite="undefined")
    assert report.failure is None, report.failure
    finite = judged(ops.sum, without_tail, of(1.0, 2.0), nonfinite="undefined")
    assert outcome(finite) is not None


def test_finite_data_say_nothing_about_masks() -> None:
    report = judged(ops.sum, summed, of(1.0, 2.0), nonfinite="mask")
    assert report.failure is None
    assert "C-EXC-01" not in report.verdicts


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    q, k, v = (torch.nan_to_num(t, 0.0, 0.0, 0.0) for t in (q, k, v))
    scores = (q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5 + mask
    return torch.softmax(scores, -1) @ v


@pytest.mark.parametrize("policy", ["mask", "raise"])
def test_additive_masks_keep_their_infinities(policy: str) -> None:
    one = [[[[1.0], [2.0]]]]
    case = Case(
        {
            "q": pinned(one, "B H S D"),
            "k": pinned(one, "B H T D"),
            "v": pinned(one, "B H T D"),
            "mask": pinned([[0.0, -INF], [0.0, 0.0]], "S T"),
        }
    )
    report = judged(ops.attention, attention, case, nonfinite=policy)
    assert report.failure is None, report.failure
    assert report.verdicts["K-VAL-01"] is CONFORMS


def test_a_refusal_keeps_the_promise_to_raise() -> None:
    report = judged(ops.sum, refusing, of(*SPOILT), nonfinite="raise")
    assert report.failure is None
    assert report.refusal is None
    assert report.verdicts == {"C-EXC-01": CONFORMS}
    finite = judged(ops.sum, refusing, of(1.0, 2.0), nonfinite="raise")
    assert finite.failure is None
    assert finite.verdicts["K-VAL-01"] is CONFORMS


def test_a_number_taken_is_charged_and_nothing_else_is_said() -> None:
    report = judged(ops.sum, summed, of(1.0, INF), nonfinite="raise")
    assert outcome(report) == ("C-EXC-01", Kind.NONFINITE_ACCEPTED)
    assert report.failure is not None
    assert report.failure.message == (
        'returns although x[0, 1] is inf; "raise" is declared'
    )
    assert report.failure.index == (0, 1)
    assert report.verdicts == {
        "K-LIV-01": CONFORMS, "K-MEM-01": CONFORMS, "K-MEM-03": CONFORMS,
        "C-EXC-01": VIOLATES,
    }  # fmt: skip


def test_raising_on_finite_data_is_charged() -> None:
    def never(x: Tensor, dim: int = -1) -> Tensor:
        raise FloatingPointError("not finite")

    report = judged(ops.sum, never, of(1.0, 2.0), nonfinite="raise")
    assert outcome(report) == ("K-LIV-01", Kind.RAISES)


def test_a_bad_index_and_a_nan_are_told_apart() -> None:
    def clamping(weight: Tensor, indices: Tensor) -> Tensor:
        if not bool(torch.isfinite(weight).all()):
            raise FloatingPointError("not finite")
        return weight[indices.clamp(0, weight.shape[0] - 1)]

    spec = TensorSpec(
        (1,), ("d0",), "int64", values=(7).to_bytes(8, "little"), below="V"
    )
    for value, verdict in ((NAN, {"C-EXC-01": CONFORMS}), (1.0, None)):
        table = pinned([[value], [2.0]], "V D")
        report = judged(
            ops.embedding,
            clamping,
            Case({"weight": table, "indices": spec}),
            nonfinite="raise",
            out_of_bounds="clamp",
        )
        assert report.failure is None, report.failure
        if verdict is not None:
            assert report.verdicts == verdict
        else:
            assert report.verdicts["C-EXC-02"] is CONFORMS


def test_the_policy_binds_unless_it_is_undefined() -> None:
    from kfuzz.core.declaration import Declaration

    for policy, bound in (("mask", True), ("raise", True), ("undefined", False)):
        claims = Declaration(nonfinite=policy)
        assert ("C-EXC-01" in contracts_of(ops.sum, claims)) is bound
