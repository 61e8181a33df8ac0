"""C-ORD-02's batches and C-ORD-03: rows in other batches, and calls that overlap."""

import threading
import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.witnesses.relu import triton_relu
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import CaseReport, Kind, Verdict
from kfuzz.evaluation.calling import Memory
from kfuzz.evaluation.probes import calls as measuring
from kfuzz.execution.memory.fences import NoAddressSpace
from kfuzz.execution.memory.slots import Arena
from tests.helpers import judged_cases
from tests.helpers.judged_cases import row_case, spec, x_case


def judged(
    operator: Operator,
    function: Callable[..., object],
    case: Case,
    contract: str,
    **claims: object,
) -> CaseReport:
    classes = {contract, "K-VAL-01"}
    return judged_cases.judged(operator, function, case, classes=classes, **claims)


@pytest.fixture
def natively(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge as where Triton's interpreter runs nothing."""
    monkeypatch.setattr(measuring, "interpreting", lambda: False)


# Batches ----------------------------------------------------------------------


def by_rows(x: Tensor, dim: int) -> Tensor:
    """One row after the other: a row cannot know its batch."""
    rows = x.movedim(dim, -1)
    flat = rows.reshape(-1, x.shape[dim])
    made = [sum(row, torch.zeros(())) for row in flat]
    shape = rows.shape[:-1]
    return torch.stack(made).to(x.dtype).reshape(shape) if made else x.new_zeros(shape)


def split_when_few(x: Tensor, dim: int) -> Tensor:
    if x.numel() >= 4 * x.shape[dim]:
        return by_rows(x, dim)
    return by_rows(x.flip(dim), dim)


def by_place(x: Tensor, dim: int) -> Tensor:
    """The last row of any batch is summed from its end."""
    y = by_rows(x, dim)
    if len(x) and x.dim() == 2:
        y[-1:] = by_rows(x[-1:].flip(dim), dim)
    return y


DATA = row_case("randn", (6, 33))


def test_rows_that_follow_their_batch_are_charged() -> None:
    report = judged(ops.sum, split_when_few, DATA, "C-ORD-02", batch_invariant=True)
    assert report.failure is not None
    assert report.failure.contract == "C-ORD-02"
    assert report.failure.kind is Kind.BATCH_DEPENDENT
    assert "in the batch of 6 rows" in report.failure.message
    assert "a batch of row" in report.failure.message


def test_rows_that_follow_their_place_are_charged() -> None:
    report = judged(ops.sum, by_place, DATA, "C-ORD-02", batch_invariant=True)
    assert report.failure is not None
    assert report.failure.kind is Kind.BATCH_DEPENDENT


def test_only_who_declares_batch_invariance_is_held_to_it() -> None:
    assert judged(ops.sum, split_when_few, DATA, "C-ORD-02").failure is None


@pytest.mark.parametrize(
    "case",
    [
        DATA,
        row_case("nan1", (5, 7), "float16"),
        Case({"x": spec("randn", (2, 3, 9))}, {"dim": 1}),
        Case({"x": spec("randn", (4, 9), strides=(1, 4))}, {"dim": -1}),
        Case({"x": spec("randn", (4, 9), strides=(0, 1))}, {"dim": -1}),
    ],
    ids=["plain", "nan", "middle", "transposed", "expanded"],
)
def test_rows_of_their_own_conform(case: Case) -> None:
    report = judged(ops.sum, by_rows, case, "C-ORD-02", batch_invariant=True)
    assert report.failure is None
    assert report.verdicts["C-ORD-02"] is Verdict.CONFORMS


@pytest.mark.parametrize(
    "case",
    [
        row_case("randn", (1, 9)),
        row_case("randn", (9,)),
        Case({"x": spec("randn", (4, 9))}, {"dim": 0}),
    ],
    ids=["one row", "no rows", "rows are reduced"],
)
def test_a_case_without_rows_says_nothing_of_batches(case: Case) -> None:
    report = judged(ops.sum, split_when_few, case, "C-ORD-02", batch_invariant=True)
    assert report.failure is None
    assert "C-ORD-02" not in report.verdicts


# Calls that overlap -----------------------------------------------------------


_shared: dict[object, Tensor] = {}
_own = threading.local()


def by_way_of(kept: dict[object, Tensor], x: Tensor) -> Tensor:
    key = (x.shape, x.dtype, x.device)
    if key not in kept:
        kept[key] = torch.empty_like(x)
    torch.clamp(x, min=0, out=kept[key])
    return kept[key].clone()


def shared_workspace(x: Tensor) -> Tensor:
    return by_way_of(_shared, x)


def own_workspace(x: Tensor) -> Tensor:
    if not hasattr(_own, "kept"):
        _own.kept = {}
    return by_way_of(_own.kept, x)


@pytest.mark.usefixtures("natively")
def test_calls_that_share_memory_are_charged() -> None:
    report = judged(ops.relu, shared_workspace, x_case("randn", (4, 8)), "C-ORD-03")
    assert report.failure is not None
    assert report.failure.contract == "C-ORD-03"
    assert report.failure.kind is Kind.OVERLAP_DEPENDENT
    assert "where several calls overlap" in report.failure.message


@pytest.mark.usefixtures("natively")
def test_one_call_at_a_time_is_no_overlap() -> None:
    lock, shared = threading.Lock(), shared_workspace

    def locked(x: Tensor) -> Tensor:
        with lock:
            return shared(x)

    def inplace(x: Tensor) -> Tensor:
        return x.clamp_(min=0)

    def given(x: Tensor, y: Tensor) -> None:
        torch.clamp(x, min=0, out=y)

    case = x_case("randn", (4, 8))
    for function, claims in (
        (locked, {}),
        (own_workspace, {"determinism": "bitwise"}),
        (inplace, {"inplace": "x"}),
        (given, {"out": "y"}),
    ):
        report = judged(ops.relu, function, case, "C-ORD-03", **claims)
        assert report.failure is None, report.failure
        assert report.verdicts["C-ORD-03"] is Verdict.CONFORMS


@pytest.mark.usefixtures("natively")
def test_what_a_call_raises_beside_others_is_charged() -> None:
    inside: list[int] = []

    def alone(x: Tensor) -> Tensor:
        if inside:
            raise RuntimeError("in use")
        inside.append(1)
        try:
            return torch.relu(x).clone()
        finally:
            inside.clear()

    def absent(x: Tensor) -> Tensor:
        return alone(x) if not inside else {}["a thread's, concurrently"]

    for function, message in ((alone, "RuntimeError: in use"), (absent, "KeyError")):
        report = judged(ops.relu, function, x_case("randn", (4, 8)), "C-ORD-03")
        assert report.failure is not None
        assert report.failure.contract == "C-ORD-03"
        assert message in report.failure.message


@pytest.mark.usefixtures("natively")
def test_what_is_not_for_concurrent_calls_or_takes_long_is_not_overlapped() -> None:
    busy = threading.Lock()

    def simulated(x: Tensor) -> Tensor:  # as Numba's simulator
        assert busy.acquire(blocking=False), "concurrent simulated kernel not supported"
        try:
            return torch.relu(x).clone()
        finally:
            busy.release()

    def long(x: Tensor) -> Tensor:
        assert threading.current_thread() is threading.main_thread()
        time.sleep(0.21)
        return torch.relu(x)

    for function in (simulated, long):
        report = judged(ops.relu, function, x_case("randn", (4, 8)), "C-ORD-03")
        assert report.failure is None, report.failure


@pytest.mark.usefixtures("natively")
def test_a_slower_machine_does_not_mend_what_overlapping_calls_showed() -> None:
    inside: list[int] = []

    def alone(x: Tensor) -> Tensor:
        assert not inside, "in use"
        inside.append(1)
        try:
            time.sleep(0.06)
            return torch.relu(x).clone()
        finally:
            inside.clear()

    report = judged(ops.relu, alone, x_case("randn", (4, 8)), "C-ORD-03")
    assert report.failure is not None
    assert report.failure.contract == "C-ORD-03"


def in_turn() -> Callable[[Tensor, int], Tensor]:
    """Sums from the front, or from the back in threads: both are admitted."""

    def summed(x: Tensor, dim: int) -> Tensor:
        aside = threading.current_thread() is not threading.main_thread()
        return by_rows(x.flip(dim) if aside else x, dim)

    return summed


@pytest.mark.usefixtures("natively")
def test_bits_count_where_they_are_declared() -> None:
    assert judged(ops.sum, in_turn(), DATA, "C-ORD-03").failure is None
    report = judged(ops.sum, in_turn(), DATA, "C-ORD-03", determinism="bitwise")
    assert report.failure is not None
    assert report.failure.kind is Kind.OVERLAP_DEPENDENT
    assert "bitwise determinism is declared" in report.failure.message


@pytest.mark.usefixtures("natively")
def test_what_is_wrong_by_itself_is_no_matter_of_overlap() -> None:
    def wrong_below(x: Tensor) -> Tensor:
        return torch.where(x.flatten()[0] < 0, x, torch.relu(x))

    fill = Fill("ones", 2)
    case = Case({"x": TensorSpec((4,), ("d0",), "float32", fill=fill)})
    report = judged(ops.relu, wrong_below, case, "C-ORD-03")
    assert report.failure is None
    assert "C-ORD-03" not in report.verdicts


def test_what_triton_interprets_does_not_overlap_and_the_rest_does() -> None:
    case = x_case("randn", (4, 8))
    report = judged(ops.relu, triton_relu.function, case, "C-ORD-03")
    assert report.failure is None
    assert "C-ORD-03" not in report.verdicts
    report = judged(ops.relu, shared_workspace, case, "C-ORD-03")
    assert report.failure is not None
    assert report.failure.contract == "C-ORD-03"


@pytest.mark.usefixtures("natively")
@pytest.mark.parametrize("lacking", ["the call alone", "the threads"])
def test_want_of_address_space_is_nobodys_fault(
    lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise NoAddressSpace("cannot map 3 GiB of address space")

    if lacking == "the threads":
        monkeypatch.setattr("kfuzz.execution.calls.batches.place", refuse)
    else:
        apart = Memory.elsewhere

        def elsewhere(memory: Memory) -> Arena:
            monkeypatch.setattr("kfuzz.execution.calls.results.place", refuse)
            return apart(memory)

        monkeypatch.setattr(Memory, "elsewhere", elsewhere)
    case = x_case("randn", (4, 8))
    report = judged(ops.relu, shared_workspace, case, "C-ORD-03")
    assert report.failure is None
    assert report.error is None
    assert "C-ORD-03" not in report.verdicts
