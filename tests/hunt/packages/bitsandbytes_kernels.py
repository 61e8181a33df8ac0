"""The Triton backend of bitsandbytes 0.50.2 as released: round trips, block by block.

It is what XPU devices get; elsewhere it can be called by its module. A value comes back
within half the widest step of its format times the largest of its block.
"""

import torch

import kfuzz
from kfuzz import strategies as ks
from kfuzz.numerics import modelling as nm

PACKAGE = "bitsandbytes"
VERSION = "0.50.2"
NEEDS = ()

if not torch.cuda.is_available():
    raise ImportError("bitsandbytes.backends.triton asks for an accelerator")

from bitsandbytes.backends.triton import ops as backend  # noqa: E402

same = kfuzz.Operator(
    "quantize_and_back",
    inputs={"x": ks.tensors("M N", within=(-1, 1))},
    oracle=lambda x: x,
    error_model=lambda problem: nm.around(problem, problem.tensors["x"], 0.21),
    shape_class="M >= 1 and N >= 1 and M * N <= 4096",
)


def _round_trip(x: torch.Tensor, kind: str) -> torch.Tensor:
    codes, absmax = backend.quantize_4bit(x, 64, kind, torch.uint8)
    return backend.dequantize_4bit(codes, absmax, 64, kind, x.shape, x.dtype)


kfuzz.kernel(same, name="bitsandbytes_nf4")(lambda x: _round_trip(x, "nf4"))
kfuzz.kernel(same, name="bitsandbytes_fp4")(lambda x: _round_trip(x, "fp4"))
