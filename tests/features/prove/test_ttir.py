"""Reading Triton's IR: operations with their types, regions and lines."""

# ruff: noqa: E501 - IR is as it is printed

import pytest

from kfuzz.features.prove.ir.ttir import Type, UnreadableError, parse_type, read
from tests.features.prove.kernels import copy_ir

LOOP = """
#loc = loc("k.py":3:1)
module {
  tt.func public @k(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("x"(#loc)), %n: i32 loc("n"(#loc))) attributes {noinline = false} {
    %0 = arith.constant 0 : i32 loc(#loc)
    %1 = arith.constant 1 : i32 loc(#loc)
    %r:2 = scf.for %i = %0 to %n step %1 iter_args(%a = %0, %b = %1) -> (i32, i32)  : i32 {
      %s = tt.call @f__i32(%a) : (i32) -> i32 loc(#loc4)
      scf.yield %s, %b : i32, i32 loc(#loc)
    } {tt.num_stages = 3 : i32} loc(#loc)
    tt.return loc(#loc)
  } loc(#loc)
  tt.func private @f__i32(%a: i32 loc("a"(#loc))) -> i32 attributes {noinline = false} {
    %z = "tt.reduce"(%a) <{axis = 0 : i32}> ({
    ^bb0(%p: i32 loc(unknown), %q: i32 loc(unknown)):
      %t = arith.addi %p, %q : i32 loc(#loc)
      tt.reduce.return %t : i32 loc(#loc)
    }) : (i32) -> i32 loc(#loc)
    tt.return %z : i32 loc(#loc)
  ^bb1:  // no predecessors
    tt.return %a : i32 loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc3 = loc("k.py":7:9)
#loc4 = loc("s"(#loc3))
"""


def test_loops_calls_and_regions_are_read() -> None:
    functions = read(LOOP)
    assert list(functions) == ["k", "f__i32"]
    loop = functions["k"].blocks[0].operations[2]
    assert loop.results == ("%r#0", "%r#1")
    assert loop.operands == ("%i", "%0", "%n", "%1", "%a", "%0", "%b", "%1")
    call = loop.regions[0][0].operations[0]
    assert (call.name, call.line, call.file) == ("tt.call", 7, "k.py")
    reduce = functions["f__i32"].blocks[0].operations[0]
    assert reduce.name == "tt.reduce"
    assert [name for name, _ in reduce.regions[0][0].arguments] == ["%p", "%q"]
    assert len(functions["f__i32"].blocks) == 2


def test_types_are_read() -> None:
    assert parse_type("tensor<16x64x!tt.ptr<f32>>") == Type("ptr", (16, 64), "f32")
    assert parse_type("tensor<8xi1>").bits == 1
    assert parse_type("i64").bits == 64


def test_predicates_and_places_are_kept() -> None:
    block = read(copy_ir())["copy"].blocks[0]
    compared = next(o for o in block.operations if o.name == "arith.cmpi")
    assert compared.words.startswith("slt, ")
    assert compared.line == 3


def test_what_is_no_function_is_an_error() -> None:
    with pytest.raises(UnreadableError, match=r"llvm\.global"):
        read("module {\n  llvm.global @x : i32\n}\n")
