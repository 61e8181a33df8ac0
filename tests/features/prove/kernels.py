"""Triton's IR of small kernels, as its frontend prints it, and their launches."""

# ruff: noqa: E501 - IR is as it is printed

from kfuzz.execution.launches.capture import (
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


ROW = 4

# y[row, i] = 0 for i < width of rows of four, by a block of 64 that starts with program x.
_ROWS = """
#loc = loc("rows.py":1:1)
module {{
  tt.func public @rows(%y: !tt.ptr<f32> loc("y"(#loc))) attributes {{noinline = false}} {{
    %x32 = tt.get_program_id x : i32 loc(#loc)
    %row32 = tt.get_program_id y : i32 loc(#loc)
    %x = arith.extsi %x32 : i32 to i64 loc(#loc)
    %row = arith.extsi %row32 : i32 to i64 loc(#loc)
    %block = arith.constant 64 : i64 loc(#loc)
    %none = arith.constant 0 : i64 loc(#loc)
    %four = arith.constant 4 : i64 loc(#loc)
    %first = arith.muli %x, {block} : i64 loc(#loc)
    %lane = tt.make_range {{end = 64 : i32, start = 0 : i32}} : tensor<64xi32> loc(#loc)
    %wide = arith.extsi %lane : tensor<64xi32> to tensor<64xi64> loc(#loc)
    %firsts = tt.splat %first : i64 -> tensor<64xi64> loc(#loc)
    %offs = arith.addi %firsts, %wide : tensor<64xi64> loc(#loc)
    %width = arith.constant dense<{width}> : tensor<64xi64> loc(#loc)
    %mask = arith.cmpi slt, %offs, %width : tensor<64xi64> loc(#loc)
    %start = arith.muli %row, %four : i64 loc(#loc)
    %starts = tt.splat %start : i64 -> tensor<64xi64> loc(#loc)
    %places = arith.addi %starts, %offs : tensor<64xi64> loc(#loc)
    %ys = tt.splat %y : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>> loc(#loc)
    %to = tt.addptr %ys, %places : tensor<64x!tt.ptr<f32>>, tensor<64xi64> loc(#loc)
    %v = arith.constant dense<0.0> : tensor<64xf32> loc(#loc)
    tt.store %to, %v, %mask : tensor<64x!tt.ptr<f32>> loc(#loc)
    tt.return loc(#loc)
  }} loc(#loc)
}} loc(#loc)
"""


def rows_ir(width: int, *, block: str = "%block") -> str:
    """Return the IR of a store of so many elements of each row; `%none` stands still."""
    return _ROWS.format(width=width, block=block)


def rows_launch(rows: int, across: int) -> Launch:
    """Return a launch on so many rows, with so many programs along each."""
    y = TensorArgument("*fp32", 4, (rows, ROW), (ROW, 1), 0, 0, rows * ROW, output=True)
    return Launch("rows", "rows.py", 1, {"y": y}, (across, rows, 1), {}, {})
