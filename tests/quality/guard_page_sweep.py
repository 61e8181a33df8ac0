"""Runs torch's operators on arguments flush against pages that fault; a script.

It prints how many calls returned. With the argument "control" it then reads one byte
too many and must die of it. With "cuda" and names of operators it runs these on a GPU,
each until it faults: then it says on what, and ends.
"""

import ctypes
import itertools
import mmap
import sys
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from kfuzz.core.recipe import Edge, Fill, TensorSpec, contiguous_strides
from kfuzz.execution.device.backends import fault_of
from kfuzz.execution.memory.placement import place
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.memory.slots import Arena

Shape = tuple[int, ...]

# Sizes beside vector widths and tiles, and beyond a tile of oneDNN's and MKL's.
MATRICES: list[Shape] = [(4, 6), (1, 17), (33, 129)]
IMAGES: list[Shape] = [(2, 3, 9, 7), (1, 16, 8, 8)]
DTYPES = ("float32", "float16", "bfloat16")
LAYOUTS = ("contiguous", "offset", "transposed", "padded", "expanded")
SIDES = ("start", "end")
# 1 makes every end flush; 16 is what kernels are given.
ALIGNMENTS = (1, 16)

# Each takes x and y (alike) and rows: an index below x's rows for each of x's elements.
OPERATORS: dict[str, Callable[[Tensor, Tensor, Tensor], object]] = {
    "relu": lambda x, y, rows: torch.relu(x),
    "gelu": lambda x, y, rows: F.gelu(x),
    "exp": lambda x, y, rows: torch.exp(x),
    "where": lambda x, y, rows: torch.where(x > y, x, y),
    "cat": lambda x, y, rows: torch.cat([x, y]),
    "softmax": lambda x, y, rows: torch.softmax(x, -1),
    "sum": lambda x, y, rows: (x.sum(-1), x.sum(0)),
    "amax": lambda x, y, rows: (x.amax(-1), x.amax(0)),
    "argmax": lambda x, y, rows: (x.argmax(-1), x.argmax()),
    "var": lambda x, y, rows: x.var(-1),
    "cumsum": lambda x, y, rows: (x.cumsum(-1), x.cumsum(0)),
    "sort": lambda x, y, rows: torch.sort(x, -1),
    "topk": lambda x, y, rows: torch.topk(x, 2, -1),
    "layer_norm": lambda x, y, rows: F.layer_norm(x, x.shape[-1:], y[0], y[-1]),
    "matmul": lambda x, y, rows: (x @ y.mT, x.mT @ y, x @ y[0]),
    "gather": lambda x, y, rows: x.gather(0, rows),
    "index_select": lambda x, y, rows: x.index_select(0, rows[:, 0]),
    "embedding": lambda x, y, rows: F.embedding(rows, x),
    "cross_entropy": lambda x, y, rows: F.cross_entropy(x, rows[:, 0] % x.shape[-1]),
    "conv2d": lambda x, y, rows: F.conv2d(x, y[:, :, :3, :3]),
}


def specs(shape: Shape, dtype: str, layout: str) -> dict[str, TensorSpec]:
    """Return the recipes of x, y and rows."""
    axes = tuple(f"d{i}" for i in range(len(shape)))
    strides, offset = None, 0
    if layout == "offset":
        offset = 1
    elif layout == "transposed":
        *outer, m, n = contiguous_strides((*shape[:-2], shape[-1], shape[-2]))
        strides = (*outer, n, m)
    elif layout == "padded":
        strides = contiguous_strides((*shape[:-1], shape[-1] + 3))
    elif layout == "expanded":
        strides = (0, *contiguous_strides(shape)[1:])
    spec = TensorSpec(shape, axes, dtype, strides, offset, Fill("randn"))
    return {"x": spec, "y": spec, "rows": TensorSpec(shape, axes, "int64", values=b"")}


def placements(device: str = "cpu") -> Iterator[tuple[Shape, dict[str, Tensor]]]:
    """Yield the arguments in every dtype and layout, at either edge."""
    arena = Arena(device)
    for shape, dtype, layout, side, alignment in itertools.product(
        (*MATRICES, *IMAGES), DTYPES, LAYOUTS, SIDES, ALIGNMENTS
    ):
        count = torch.arange(torch.Size(shape).numel()).reshape(shape)
        if device != "cpu" and alignment == 1:
            continue  # no tensor on a GPU is aligned to less than its elements
        values = (count % 11 - 5).to(getattr(torch, dtype)).to(device)
        given = {"x": values, "y": values, "rows": (count % shape[0]).to(device)}
        recipes = specs(shape, dtype, layout)
        placed = place(
            recipes, given, device=device, alignment=alignment, poison=Poison.NAN,
            arena=arena, edge=Edge(side),
        )  # fmt: skip
        for name, tensor in placed.tensors.items():
            storage = tensor.untyped_storage()
            base, stop = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
            touching = base if side == "start" else stop
            assert touching % mmap.PAGESIZE == 0 or alignment > 1, name
        yield shape, placed.tensors


def on_a_gpu(names: list[str]) -> None:
    """Run operators on every placement on a GPU, until one faults."""
    calls = 0
    for name in names:
        for shape, tensors in placements("cuda"):
            if (name == "conv2d") is not (len(shape) == 4):
                continue
            x = tensors["x"]
            try:
                OPERATORS[name](x, tensors["y"], tensors["rows"])
                torch.cuda.synchronize()
            except RuntimeError as error:
                if fault := fault_of(x.device):
                    place = f"{x.dtype} {shape} {x.stride()} +{x.storage_offset()}"
                    sys.stdout.write(f"{name}: {fault} on {place}: {error}\n")
                    return
                raise
            calls += 1
    sys.stdout.write(f"{calls}\n")


def main() -> None:
    """Run every operator on every placement."""
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["cuda"]:
        on_a_gpu(sys.argv[2:])
        return
    calls = 0
    for shape, tensors in placements():
        for name, operator in OPERATORS.items():
            if (name == "conv2d") is (len(shape) == 4):
                operator(tensors["x"], tensors["y"], tensors["rows"])
                calls += 1
    sys.stdout.write(f"{calls}\n")
    sys.stdout.flush()
    if sys.argv[1:] == ["control"]:
        x = tensors["x"].untyped_storage()
        ctypes.string_at(x.data_ptr(), x.nbytes() + mmap.PAGESIZE)


if __name__ == "__main__":
    main()
