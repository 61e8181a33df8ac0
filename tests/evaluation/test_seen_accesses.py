"""C-ORD-02, K-MEM-02 and notes: races and unwritten loads that the interpreter sees."""

import re

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

import kfuzz
from kfuzz import strategies as ks
from kfuzz.core.budget import Depth
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import CaseReport, Kind, Verdict
from kfuzz.execution.interpreter.watch import interpreting
from tests.helpers.judged_cases import bench_of

pytestmark = pytest.mark.skipif(not interpreting(), reason="needs the interpreter")
BLOCK = 16
FILE = "test_seen_accesses.py"


@triton.jit
def copy_kernel(x, y, cells, lock, n, MODE: tl.constexpr, BLOCK: tl.constexpr):
    """Copy x to y; what else happens is the mode's."""
    program = tl.program_id(0)
    offs = program * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offs, mask=offs < n, other=0.0)
    if MODE == "near":
        # One unit in the last place, if the cell holds a NaN.
        stale = tl.load(cells + 1)
        value = tl.where(stale != stale, value * (1 + 2.0**-23), value)
    if MODE == "unused":
        stale = tl.load(cells + 1)
        value = tl.where(offs < 0, stale, value)
    if MODE == "scratch":
        tl.store(cells, program.to(tl.float32))
    if MODE == "late":
        # What the program before stores, in this order of programs alone.
        other = tl.load(y + offs - BLOCK, mask=offs >= BLOCK, other=0.0)
        before = tl.load(x + offs - BLOCK, mask=offs >= BLOCK, other=0.0)
        value = tl.where(other == before, value, 2.0)
    if MODE == "looked at":
        other = tl.load(y + offs - BLOCK, mask=offs >= BLOCK, other=0.0)
        value = tl.where(offs < 0, other, value)
    if MODE == "equal":
        tl.store(cells, 1.0)
    if MODE == "locked":
        while tl.atomic_cas(lock, 0, 1) == 1:
            pass
        tl.store(cells, tl.load(cells) + tl.sum(value, axis=0))
        tl.atomic_xchg(lock, 0)
    if MODE == "turns":
        # Each program waits for the one before it; the scratch is nobody's.
        tl.store(cells, program.to(tl.float32))
        while tl.atomic_add(lock, 0) != program:
            pass
        tl.atomic_add(lock, 1)
    if MODE == "middle":
        tl.store(y + offs, value, mask=(offs < n) & (offs > 0))
        # The first and the last program agree: reverse order shows nothing.
        tl.store(y, (program == 1).to(tl.float32))
    elif MODE == "last":
        # Every program writes its first value to the first element.
        tl.store(y + offs * (offs % BLOCK != 0), value, mask=offs < n)
    else:
        tl.store(y + offs, value, mask=offs < n)


COPY = kfuzz.Operator(
    "copy",
    inputs={"x": ks.tensors("*")},
    oracle=lambda x: x * 1.0,
    error_model=kfuzz.numerics.elementwise(ulps=4),
)


def judged(mode: str, *, depth: Depth = Depth.SEARCH, **claims: object) -> CaseReport:
    def copy(x: Tensor) -> Tensor:
        y, cells = torch.empty_like(x), torch.empty(2, device=x.device)
        cells[:1] = 0.0
        if mode in ("near", "unused"):
            cells = torch.empty(2)
        lock = torch.zeros(1, dtype=torch.int32)
        grid = (triton.cdiv(x.numel(), BLOCK),)
        copy_kernel[grid](x, y, cells, lock, x.numel(), MODE=mode, BLOCK=BLOCK)
        return y

    spec = TensorSpec((1, 40), ("d0", "d1"), "float32", fill=Fill("randn", 2))
    evaluator = bench_of(COPY, copy, sizes="interpret", **claims)
    return evaluator.judge(Case({"x": spec}), depth)


def test_a_result_that_follows_the_order_of_programs_is_a_race() -> None:
    for depth in (Depth.SEARCH, Depth.FULL):
        report = judged("last", depth=depth)
        assert report.failure is not None
        assert (report.failure.contract, report.failure.kind) == ("C-ORD-02", Kind.RACE)
        assert (report.failure.output, report.failure.index) == ("y", (0, 0))
        assert "programs (0, 0, 0) and (1, 0, 0) store" in report.failure.message
        assert f"{FILE}:" in report.failure.message
        assert {a.where for a in report.failure.accesses} == {"race"}


def test_a_race_is_told_that_reverse_order_does_not_show() -> None:
    report = judged("middle")
    assert report.failure is not None
    assert (report.failure.contract, report.failure.kind) == ("C-ORD-02", Kind.RACE)
    assert "y[0, 0] = 0 or 1" in report.failure.message


@pytest.mark.parametrize("claims", [{}, {"determinism": "none"}])
def test_a_load_of_what_another_program_stores_is_a_race(
    claims: dict[str, str],
) -> None:
    report = judged("late", **claims)
    assert report.failure is not None
    assert (report.failure.contract, report.failure.kind) == ("C-ORD-02", Kind.RACE)
    told = re.search(
        r"program \(1, 0, 0\) loads element 0 of .* at .*py:(\d+), which program "
        r"\(0, 0, 0\) stores to at .*py:(\d+), and nothing orders them$",
        report.failure.message,
    )
    assert told
    assert told[1] != told[2]
    [access] = report.failure.accesses
    assert (access.other_access, access.count) == ("store", 32)


def test_a_load_of_which_nothing_comes_is_a_note() -> None:
    report = judged("looked at")
    assert report.failure is None
    [note] = report.notes
    assert note.startswith("two programs load and store, unordered, one element of ")


def test_no_order_is_promised_where_determinism_is_none() -> None:
    report = judged("last", determinism="none")
    assert "C-ORD-02" not in report.verdicts
    assert report.failure is None or report.failure.contract != "C-ORD-02"


def test_a_race_on_which_no_result_depends_is_a_note() -> None:
    report = judged("scratch")
    assert report.failure is None
    assert report.verdicts["C-ORD-02"] is Verdict.CONFORMS
    [note] = report.notes
    assert note.startswith("two programs store different values to one element of ")
    assert f"{FILE}:" in note
    assert note.endswith("no result depends on it")


@pytest.mark.parametrize("mode", ["plain", "equal", "locked"])
def test_programs_in_order_or_in_agreement_do_not_race(mode: str) -> None:
    report = judged(mode)
    assert report.failure is None
    assert report.notes == ()
    assert report.verdicts["C-ORD-02"] is Verdict.CONFORMS


@pytest.mark.slow
def test_an_order_in_which_programs_wait_for_ever_is_no_evidence() -> None:
    report = judged("turns")
    assert (report.failure, report.unsupported, report.error) == (None, None, None)
    assert report.verdicts["C-ORD-02"] is Verdict.CONFORMS


def test_a_load_of_what_nothing_wrote_is_charged_within_the_tolerance() -> None:
    report = judged("near")
    assert report.failure is not None
    assert report.failure.contract == "K-MEM-02"
    assert report.failure.kind is Kind.UNWRITTEN
    assert "float32[2]" in report.failure.message
    assert f"{FILE}:" in report.failure.message
    # Both values are admitted: the message gives them, a script cannot tell.
    one, other = re.findall(r"= (\S+) or (\S+), depending", report.failure.message)[0]
    assert one != other
    assert report.failure.expected is None
    assert {a.where for a in report.failure.accesses} == {"unwritten"}
    assert report.ratio < 1


def test_a_load_of_what_nothing_wrote_is_a_note_where_it_is_not_used() -> None:
    report = judged("unused")
    assert report.failure is None
    assert report.verdicts["K-MEM-02"] is Verdict.CONFORMS
    [note] = report.notes
    assert note.startswith("loads uninitialized elements")
    assert f"{FILE}:" in note
    assert judged("unused", depth=Depth.BASE).notes == ()
