"""What a user without an error model is told of a kernel."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts.classes import CLASSES
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import Verdict
from tests.helpers import judged_cases
from tests.helpers.shadow_runs import operator_of

CASE = Case({"x0": TensorSpec((4, 33), ("d0", "d1"), "float32", fill=Fill("randn", 1))})


judged = partial(judged_cases.judged, case=CASE, classes=CLASSES)


def swish(x0: Tensor) -> Tensor:
    return x0 / (1 + torch.exp(-x0))


def test_a_correct_kernel_conforms_and_a_wrong_one_violates() -> None:
    operator = operator_of(swish)
    for function in (swish, torch.nn.functional.silu):
        report = judged(operator, function)
        assert (report.failure, report.notes) == (None, ())
        assert report.verdicts["K-VAL-01"] is Verdict.CONFORMS
    wrong = judged(operator, lambda x0: x0 / (2 + torch.exp(-x0)))
    assert wrong.failure is not None
    assert wrong.failure.contract == "K-VAL-01"
    half = judged(operator, lambda x0: swish(x0.half()).float())
    assert half.failure is not None


def test_beyond_the_bound_within_four_times_is_a_note() -> None:
    def coarse(x0: Tensor) -> Tensor:
        y = torch.exp(x0.double())
        return (y * (1 + 12 * 2.0**-24)).float()

    operator = operator_of(torch.exp)
    report = judged(operator, coarse)
    assert report.failure is None
    (note,) = report.notes
    assert note == "y0 lies beyond the running-error bound, within 4 times of it"
    strict = judged(operator, coarse, algorithm="as_reference")
    assert strict.failure is not None
    assert judged(operator, torch.exp, algorithm="as_reference").failure is None


def test_an_operator_without_a_rule_is_named_to_the_user() -> None:
    report = judged(operator_of(torch.special.airy_ai), torch.special.airy_ai)
    assert report.failure is None
    assert report.notes == ("y0 is undecided: no error rule for aten.special_airy_ai",)
    assert report.verdicts["K-VAL-01"] is Verdict.UNDER_SPECIFIED


def test_an_index_in_doubt_is_named_beside_the_operator() -> None:
    def placed(x0: Tensor) -> Tensor:
        best = (x0 / 3).softmax(-1).argmax(-1, keepdim=True)
        return torch.zeros_like(x0).scatter_add(-1, best, x0)

    spec = TensorSpec((2, 8), ("d0", "d1"), "float32", fill=Fill("all_equal", 1))
    report = judged(operator_of(placed), placed, case=Case({"x0": spec}))
    why = "no error rule for aten.scatter_add where an index is in doubt"
    assert report.notes == (f"y0 is undecided: {why}",)


def cut(x0: Tensor, x1: Tensor, *, right: bool = False) -> Tensor:
    return torch.bucketize(x0, x1, right=right, out_int32=True)


def sought(x0: Tensor, x1: Tensor, *, right: bool = True) -> Tensor:
    return torch.searchsorted(x1, x0, side="right" if right else "left")


@pytest.mark.parametrize(("find", "wrong"), [(cut, True), (sought, False)])
def test_the_place_of_a_number_among_edges_is_known(
    find: Callable[..., Tensor], wrong: bool
) -> None:
    edges = ks.tensors("E", rising=True)
    fill = Fill("exact_int", 1)
    specs = {
        "x0": TensorSpec((99,), ("N",), "float32", fill=fill),
        "x1": TensorSpec((5,), ("E",), "float32", fill=fill, domain=edges.domain),
    }
    inputs = {"x0": ks.tensors("N"), "x1": edges}
    kind = "int32" if find is cut else "int64"
    operator = kfuzz.reference(find, inputs, results={"y": kind})
    right = judged(operator, lambda x0, x1: find(x0, x1), case=Case(specs))
    assert right.failure is None
    assert right.verdicts["K-VAL-01"] is Verdict.CONFORMS
    faulty = judged(
        operator, lambda x0, x1: find(x0, x1, right=wrong), case=Case(specs)
    )
    assert faulty.failure is not None
    assert faulty.failure.contract == "K-VAL-01"


def test_what_reads_the_bits_of_numbers_is_undecided() -> None:
    """Their float64 counterparts have other bits, and more of them."""

    def doubled(x0: Tensor) -> Tensor:
        bits = torch.int32 if x0.dtype is torch.float32 else torch.int64
        return x0.contiguous().view(bits).view(x0.dtype) * 2

    report = judged(operator_of(doubled), doubled)
    assert report.failure is None
    assert report.notes == ("y0 is undecided: no error rule for aten.view",)


def masked_rows(x0: Tensor) -> Tensor:
    square = x0[:, : len(x0)]
    return (square.tril() + torch.eye(len(x0))) @ x0 + (x0 > 3) * x0


def test_what_a_mask_takes_out_may_be_left_out_with_its_nan() -> None:
    """Products with the zeros of a triangle or a mask are nothing to a kernel."""

    def rows(x0: Tensor) -> Tensor:
        """Each row from those up to it alone, products with a mask's zeros left out."""
        made = [x0[i, : i + 1] @ x0[: i + 1] + x0[i] for i in range(len(x0))]
        return torch.stack(made) + torch.where(x0 > 3, x0, 0.0)

    def careless(x0: Tensor) -> Tensor:
        return rows(torch.nan_to_num(x0))

    data = torch.full((4, 4), 0.5)
    data[2, 2] = float("nan")
    values = data.numpy().tobytes()
    spec = TensorSpec((4, 4), ("d0", "d1"), "float32", values=values)
    operator = operator_of(masked_rows)
    case = Case({"x0": spec})
    assert judged(operator, masked_rows, case=case).failure is None
    assert judged(operator, rows, case=case).failure is None
    wrong = judged(operator, careless, case=case).failure
    assert wrong is not None
    assert wrong.contract == "C-EXC-01"


def test_an_infinity_may_meet_a_product_that_has_vanished() -> None:
    """A scan multiplies neighbours first: 1e-30 * 1e-30 * Inf is NaN or Inf."""

    def scan(x0: Tensor) -> Tensor:
        pairs = x0[:, :1] * (x0[:, 1:2] * x0[:, 2:])
        return torch.cat([x0[:, :1], x0[:, :1] * x0[:, 1:2], pairs], -1)

    def last(x0: Tensor) -> Tensor:
        return scan(x0)[:, 2]

    for small, decided in ((1e-30, False), (0.5, True)):
        data = torch.tensor([[float("inf"), small, small]])
        values = data.numpy().tobytes()
        spec = TensorSpec((1, 3), ("d0", "d1"), "float32", values=values)
        case = Case({"x0": spec})
        for exact, kernel_of in (
            (lambda x0: x0.cumprod(-1), scan),
            (lambda x0: x0.prod(-1), last),
        ):
            operator = operator_of(exact)
            assert judged(operator, kernel_of, case=case).failure is None
            if decided:
                wrong = judged(operator, lambda x, k=kernel_of: k(x) * 0.0, case=case)
                assert wrong.failure is not None


def test_several_results_are_judged_each() -> None:
    def both(x0: Tensor) -> tuple[Tensor, Tensor]:
        return x0 * 2, x0.sum(-1)

    operator = operator_of(both, outputs=2)
    assert judged(operator, both).failure is None
    wrong = judged(operator, lambda x0: (x0 * 2, x0[..., :-1].sum(-1)))
    assert wrong.failure is not None
    assert wrong.failure.output == "y1"


def test_gates_that_one_product_gives_are_decided() -> None:
    """Cells of recurrent networks split it without views."""

    def gated(x0: Tensor) -> Tensor:
        a, b, c = x0.unsafe_chunk(3, -1)
        return torch.sigmoid(a) * b + torch.tanh(c)

    operator = operator_of(gated)
    right = judged(operator, gated)
    assert (right.failure, right.notes) == (None, ())
    assert right.verdicts["K-VAL-01"] is Verdict.CONFORMS
    assert judged(operator, lambda x0: gated(x0 * (1 + 2**-10))).failure is not None
