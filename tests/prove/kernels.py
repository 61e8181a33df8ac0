"""Triton's IR of small kernels, as its frontend prints it, and their launches."""

# ruff: noqa: E501 - IR is as it is printed

from kfuzz.execution.launches.launch import (
    ConstArgument,
    IntArgument,
    Launch,
    TensorArgument,
)

BLOCK = 64

# y[i * step] = x[i] for i < n, by blocks; what differs from kernel to kernel is put in.
_COPY = """
#loc = loc("copy.py":1:1)
module {{
  tt.func public @copy(%x: !tt.ptr<f32> loc("x"(#loc)), %y: !tt.ptr<f32> loc("y"(#loc)), %n: i32 loc("n"(#loc)), %step: i32 loc("step"(#loc))) attributes {{noinline = false}} {{
    %pid32 = tt.get_program_id x : i32 loc(#loc2)
    %pid = arith.extsi %pid32 : i32 to i64 loc(#loc2)
    %block = arith.constant {block} : i64 loc(#loc2)
    %first = arith.muli %pid, %block : i64 loc(#loc2)
    %lane = tt.make_range {{end = 64 : i32, start = 0 : i32}} : tensor<64xi32> loc(#loc2)
    %wide = arith.extsi %lane : tensor<64xi32> to tensor<64xi64> loc(#loc2)
    %firsts = tt.splat %first : i64 -> tensor<64xi64> loc(#loc2)
    %offs = arith.addi %firsts, %wide : tensor<64xi64> loc(#loc2)
    %n64 = arith.extsi %n : i32 to i64 loc(#loc3)
    %ns = tt.splat %n64 : i64 -> tensor<64xi64> loc(#loc3)
    %mask = arith.cmpi {compare}, %offs, %ns : tensor<64xi64> loc(#loc3)
    %xs = tt.splat %x : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>> loc(#loc4)
    %from = tt.addptr %xs, %offs : tensor<64x!tt.ptr<f32>>, tensor<64xi64> loc(#loc4)
    %v = tt.load %from, %mask : tensor<64x!tt.ptr<f32>> loc(#loc4)
    %steps = tt.splat %step : i32 -> tensor<64xi32> loc(#loc5)
    %narrow = arith.trunci %offs : tensor<64xi64> to tensor<64xi32> loc(#loc5)
    {places} loc(#loc5)
    %ys = tt.splat %y : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>> loc(#loc5)
    %to = tt.addptr %ys, %places : tensor<64x!tt.ptr<f32>>, {kind} loc(#loc5)
    {more}
    tt.store %to, %v{mask} : tensor<64x!tt.ptr<f32>> loc(#loc5)
    tt.return loc(#loc)
  }} loc(#loc)
}} loc(#loc)
#loc2 = loc("copy.py":2:5)
#loc3 = loc("copy.py":3:5)
#loc4 = loc("copy.py":4:5)
#loc5 = loc("copy.py":5:5)
"""


_WIDE = """%wides = arith.extsi %steps : tensor<64xi32> to tensor<64xi64> loc(#loc5)
    %places = arith.muli %offs, %wides : tensor<64xi64>"""
_NARROW = "%places = arith.muli %narrow, %steps : tensor<64xi32>"


def copy_ir(
    *, compare: str = "slt", mask: str = ", %mask", block: int = BLOCK, more: str = "",
    bits: int = 64,
) -> str:  # fmt: skip
    """Return the IR of the copy; what is not at its default changes it.

    Args:
        compare: how offsets are held against n.
        mask: of the store.
        block: by which programs are apart; lanes are 64.
        more: operations before the store.
        bits: in which the places of y are computed.
    """
    return _COPY.format(
        compare=compare, mask=mask, block=block, more=more, kind=f"tensor<64xi{bits}>",
        places=_WIDE if bits == 64 else _NARROW,
    )  # fmt: skip


def launch(n: int, *, step: int = 1, extra: int = 0, programs: int = 0) -> Launch:
    """Return a launch of the copy on n elements.

    Args:
        n: elements.
        step: between the elements of y.
        extra: elements by which y is longer.
        programs: of the grid, as many as needed by default.
    """
    size = n + extra
    return Launch(
        "copy",
        "copy.py",
        1,
        {
            "x": TensorArgument("*fp32", 4, (n,), (1,), 0, 0, n),
            "y": TensorArgument(
                "*fp32", 4, (size,), (step,), 1, 0, (size - 1) * step + 1, output=True
            ),
            "n": IntArgument("i32", n),
            "step": IntArgument("i32", step),
            "BLOCK": ConstArgument(BLOCK, str(BLOCK)),
        },
        (programs or -(-n // BLOCK), 1, 1),
        {},
        {"n": n},
    )
