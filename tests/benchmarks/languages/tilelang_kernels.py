"""Kernels in TileLang, by its code generator for C, or on a GPU."""

import tilelang
import tilelang.language as T
import torch

import kfuzz
from kfuzz.contracts import operators as ops

tilelang.set_log_level("WARNING")


def rows_summed(block, dtype, keeps):
    """Return a kernel's source: the sum of each row, `block` columns at a time."""
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def main(x: T.Tensor((m, n), dtype), y: T.Tensor((m,), dtype)):
        with T.Kernel(m) as row:
            total = T.alloc_local((1,), "float32")
            total[0] = 0
            for start in T.serial(T.ceildiv(n, block) if keeps else n // block):
                for i in T.serial(block):
                    if start * block + i < n:
                        total[0] += T.cast(x[row, start * block + i], "float32")
            y[row] = T.cast(total[0], dtype)

    return main


target = "cuda" if torch.cuda.is_available() else "c"
made = tilelang.jit(out_idx=[1], target=target)(rows_summed)

claims = {
    "ranks": {2},
    "dims": {-1},
    "layouts": "contiguous",
    "dtypes": {"float32", "float16"},
    "configs": [{"block": 1}, {"block": 16}],
}


@kfuzz.kernel(ops.sum, **claims)
def correct(x, *, block):
    return made(block, str(x.dtype)[6:], True)(x)


@kfuzz.kernel(ops.sum, **claims)
def faulty(x, *, block):
    return made(block, str(x.dtype)[6:], False)(x)
