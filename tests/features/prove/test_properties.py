"""What is proved of small kernels, and what is not: from their IR and launches."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kfuzz.execution.launches.capture import Launch, TensorArgument
from kfuzz.features.prove.fitting import Fit
from kfuzz.features.prove.ir.graph import graph_of
from kfuzz.features.prove.ir.ttir import read
from kfuzz.features.prove.properties import Property, Prover, Reply, Solver
from kfuzz.features.prove.sampling import numbers
from tests.features.prove.kernels import copy_ir, launch, rows_ir, rows_launch

pytest.importorskip("z3")

SIZES = (1, 2, 3, 17, 63, 64, 65, 100, 128, 1000, 4096, 100_000)
CONTIGUOUS = [launch(n) for n in SIZES]
STEPPED = [launch(n, step=1 + n % 5) for n in SIZES]


def verdicts(
    text: str, launches: list[Launch], *, varied: bool = False
) -> dict[str, Reply]:
    """Return what becomes of each property, that of whole results with them."""
    graph = graph_of(read(text), launches[0])
    assert not graph.open, graph.open
    fixed = numbers(launches[0])
    relations = Fit(launches, varied=varied).fitted()
    prover = Prover(graph, relations, Solver(graph.data), fixed=fixed)
    found = {}
    for wanted in Property:
        verdict = prover.verdict(wanted)
        if wanted is not Property.COVERED and verdict is not None:
            found[str(wanted)] = verdict.reply
    return found | {str(Property.COVERED): prover.covered("y").reply}


def test_a_masked_copy_is_proved_whole() -> None:
    found = verdicts(copy_ir(), CONTIGUOUS)
    assert set(found.values()) == {Reply.PROVED}
    assert len(found) == 6


def test_a_mask_that_lets_one_more_through_is_refuted() -> None:
    found = verdicts(copy_ir(compare="sle"), CONTIGUOUS)
    assert found[Property.LOADS] is Reply.REFUTED
    assert found[Property.STORES] is Reply.REFUTED


def test_a_store_without_a_mask_is_refuted() -> None:
    found = verdicts(copy_ir(mask=""), CONTIGUOUS)
    assert found[Property.LOADS] is Reply.PROVED
    assert found[Property.STORES] is Reply.REFUTED


def test_programs_that_overlap_are_refuted() -> None:
    found = verdicts(copy_ir(block=32), CONTIGUOUS)
    assert found[Property.STORES] is Reply.PROVED
    assert found[Property.APART] is Reply.REFUTED


def in_place(at: str = "%offs") -> str:
    """Return the IR of a copy of y to itself, from other places."""
    text = copy_ir().replace("tt.splat %x", "tt.splat %y")
    return text.replace("tt.addptr %xs, %offs", f"tt.addptr %xs, {at}")


def test_programs_that_overwrite_what_they_alone_load_are_proved() -> None:
    found = verdicts(in_place(), CONTIGUOUS)
    assert found[Property.UNSEEN] is Reply.PROVED
    assert found[Property.APART] is Reply.PROVED


def test_an_in_place_shift_is_refuted_though_its_stores_are_apart() -> None:
    next_ = """%one = arith.constant dense<1> : tensor<64xi64> loc(#loc3)
    %next = arith.addi %offs, %one : tensor<64xi64> loc(#loc3)
    %mask = arith.cmpi slt, %next, %ns : tensor<64xi64> loc(#loc3)"""
    text = in_place("%next").replace(
        "%mask = arith.cmpi slt, %offs, %ns : tensor<64xi64> loc(#loc3)", next_
    )
    found = verdicts(text, CONTIGUOUS)
    assert found[Property.APART] is Reply.PROVED
    assert found[Property.UNSEEN] is Reply.REFUTED


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (lambda n: 0, Reply.PROVED),
        (lambda n: 1, Reply.UNKNOWN),
        (lambda n: int(n == 65), Reply.UNKNOWN),
    ],
    ids=["at the same element", "at another one", "at another one in one launch"],
)
def test_what_is_loaded_and_stored_may_lie_in_one_storage(
    first: Callable[[int], int], expected: Reply
) -> None:
    same = []
    for n, made in zip(SIZES, CONTIGUOUS, strict=True):
        x = made.arguments["x"]
        assert isinstance(x, TensorArgument)
        x = replace(x, storage=1, before=first(n))
        same.append(replace(made, arguments={**made.arguments, "x": x}))
    assert verdicts(copy_ir(), same)[Property.UNSEEN] is expected


def test_elements_between_blocks_are_missed() -> None:
    found = verdicts(copy_ir(block=128), CONTIGUOUS)
    assert found[Property.APART] is Reply.PROVED
    assert found[Property.COVERED] is not Reply.PROVED


def test_a_result_longer_than_what_is_stored_is_not_covered() -> None:
    longer = [launch(n, extra=1) for n in SIZES]
    found = verdicts(copy_ir(), longer)
    assert found[Property.STORES] is Reply.PROVED
    assert found[Property.COVERED] is not Reply.PROVED


def test_a_32_bit_product_with_a_stride_is_refuted() -> None:
    found = verdicts(copy_ir(bits=32), STEPPED)
    assert found[Property.LOADS] is Reply.PROVED
    assert found[Property.INT32] is Reply.REFUTED
    assert found[Property.STORES] is not Reply.PROVED  # it rests on that product


def test_strides_in_64_bits_are_proved_whatever_they_are() -> None:
    found = verdicts(copy_ir(), STEPPED)
    assert set(found.values()) == {Reply.PROVED}


def test_a_grid_that_is_too_small_leaves_elements() -> None:
    short = [launch(n, programs=max(n // 64, 1)) for n in SIZES]
    assert verdicts(copy_ir(), short)[Property.COVERED] is not Reply.PROVED


def test_no_program_is_no_fault_where_no_result_has_an_element() -> None:
    none = replace(launch(0, extra=3), grid=(0, 1, 1))
    y = none.arguments["y"]
    assert isinstance(y, TensorArgument)
    assert not none.vacuous
    weight = replace(y, output=False)
    assert replace(none, arguments={**none.arguments, "y": weight}).vacuous


@pytest.mark.parametrize(
    "more",
    [
        '%z = tt.elementwise_inline_asm "mov.b32 $0, $1;" {constraints = "=r,r", '
        "packed_element = 1 : i32, pure = false} %lane : tensor<64xi32> -> "
        "tensor<64xi32> loc(#loc5)",
        "%z = tt.never_heard_of %lane : tensor<64xi32> loc(#loc5)",
    ],
)
def test_what_is_not_understood_is_open_with_its_line(more: str) -> None:
    graph = graph_of(read(copy_ir(more=more)), CONTIGUOUS[0])
    assert "line 5" in graph.open


def test_an_address_from_data_is_not_proved() -> None:
    more = """%i = tt.bitcast %v : tensor<64xf32> -> tensor<64xi32> loc(#loc5)
    %to2 = tt.addptr %ys, %i : tensor<64x!tt.ptr<f32>>, tensor<64xi32> loc(#loc5)
    tt.store %to2, %v, %mask : tensor<64x!tt.ptr<f32>> loc(#loc5)"""
    found = verdicts(copy_ir(more=more), CONTIGUOUS)
    assert found[Property.STORES] is not Reply.PROVED
    assert found[Property.APART] is not Reply.PROVED


@pytest.mark.parametrize(
    ("kind", "places", "proved"),
    [("f32", "%v", True), ("i64", "%offs", False)],
    ids=["of floats", "of addresses"],
)
def test_halves_of_a_block_are_any_values(
    kind: str, places: str, *, proved: bool
) -> None:
    pairs, half = f"tensor<32x2x{kind}>", f"tensor<32x{kind}>"
    more = f"""%p = tt.reshape {places} : tensor<64x{kind}> -> {pairs} loc(#loc5)
    %a, %b = tt.split %p : {pairs} -> {half} loc(#loc5)"""
    if not proved:
        more += f"""
    %j = tt.join %b, %a : {half} -> {pairs} loc(#loc5)
    %k = tt.reshape %j : {pairs} -> tensor<64x{kind}> loc(#loc5)
    %to2 = tt.addptr %ys, %k : tensor<64x!tt.ptr<f32>>, tensor<64xi64> loc(#loc5)
    tt.store %to2, %v, %mask : tensor<64x!tt.ptr<f32>> loc(#loc5)"""
    found = verdicts(copy_ir(more=more), CONTIGUOUS)
    assert (found[Property.STORES] is Reply.PROVED) is proved


def test_a_narrowed_product_is_not_proved() -> None:
    more = """%ww = arith.muli %offs, %offs : tensor<64xi64> loc(#loc5)
    %t = arith.trunci %ww : tensor<64xi64> to tensor<64xi32> loc(#loc5)
    %to2 = tt.addptr %xs, %t : tensor<64x!tt.ptr<f32>>, tensor<64xi32> loc(#loc5)
    %v2 = tt.load %to2, %mask : tensor<64x!tt.ptr<f32>> loc(#loc5)"""
    found = verdicts(copy_ir(more=more), CONTIGUOUS)
    assert found[Property.LOADS] is not Reply.PROVED
    assert found[Property.INT32] is not Reply.PROVED


@pytest.mark.parametrize(("above", "whole"), [("sge", True), ("sgt", False)])
def test_two_stores_together_store_all_or_all_but_one(
    above: str, *, whole: bool
) -> None:
    halves = f"""%h = arith.constant dense<10> : tensor<64xi64> loc(#loc5)
    %low = arith.cmpi slt, %offs, %h : tensor<64xi64> loc(#loc5)
    %high = arith.cmpi {above}, %offs, %h : tensor<64xi64> loc(#loc5)
    %first = arith.andi %mask, %low : tensor<64xi1> loc(#loc5)
    %second = arith.andi %mask, %high : tensor<64xi1> loc(#loc5)
    tt.store %to, %v, %first : tensor<64x!tt.ptr<f32>> loc(#loc5)"""
    found = verdicts(copy_ir(more=halves, mask=", %second"), CONTIGUOUS)
    assert found[Property.STORES] is Reply.PROVED
    assert (found[Property.COVERED] is Reply.PROVED) is whole


@pytest.mark.parametrize(
    ("width", "across", "whole"), [(4, 1, True), (3, 1, False), (4, 0, False)]
)
def test_rows_shorter_than_a_block_are_stored_by_one_program_each(
    width: int, across: int, *, whole: bool
) -> None:
    launches = [rows_launch(rows, across or 1 + rows % 3) for rows in SIZES]
    # With several programs all store the same block: of which program x is no part.
    text = rows_ir(width, block="%block" if across else "%none")
    found = verdicts(text, launches, varied=True)
    assert found[Property.STORES] is Reply.PROVED
    if across:
        assert found[Property.APART] is Reply.PROVED
        assert (found[Property.COVERED] is Reply.PROVED) is whole
    else:
        assert found[Property.APART] is not Reply.PROVED


@pytest.mark.parametrize(("which", "reply"), [("true", True), ("false", False)])
def test_a_choice_by_a_constant_needs_what_is_chosen_alone(
    which: str, *, reply: bool
) -> None:
    more = f"""%t = arith.constant {which} loc(#loc5)
    %square = arith.muli %narrow, %narrow : tensor<64xi32> loc(#loc5)
    %far = arith.extsi %square : tensor<64xi32> to tensor<64xi64> loc(#loc5)
    %one = arith.select %t, %offs, %far : tensor<64xi64> loc(#loc5)
    %from2 = tt.addptr %xs, %one : tensor<64x!tt.ptr<f32>>, tensor<64xi64> loc(#loc5)
    %v2 = tt.load %from2, %mask : tensor<64x!tt.ptr<f32>> loc(#loc5)"""
    found = verdicts(copy_ir(more=more), CONTIGUOUS)
    assert (found[Property.LOADS] is Reply.PROVED) is reply
