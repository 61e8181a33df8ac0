"""What the test suites of libraries ask of a launch and of what surrounds it."""

import k
import torch
import triton
import triton.language as tl
from torch.multiprocessing.reductions import StorageWeakRef
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _dot(x, y, P: tl.constexpr):
    at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)
    a = tl.load(x + at)
    tl.store(y + at, tl.dot(a, a, input_precision=P))


@triton.jit
def _add(described, x):
    at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)
    for n in range(2):
        described.atomic_add([8, 16 * n], tl.load(x + at))


def _frees():
    x = torch.ones(70, device="cuda")
    made = k.add(x, x)
    return [StorageWeakRef(t.untyped_storage()) for t in (x, made)]


assert all(ref.expired() for _ in range(3) for ref in _frees())

square = torch.eye(16, device="cuda")
product = torch.empty_like(square)
for precision in ("ieee", "tf32x3", "bf16x3", "bf16x6"):
    _dot[(1,)](square, product, P=precision)
    assert torch.equal(product, square)

for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32):
    total = torch.zeros(20, 24, dtype=dtype, device="cuda")
    _add[(1,)](TensorDescriptor.from_tensor(total, [16, 16]), square.to(dtype) + 1)
    assert total.sum() == 12 * 24 + 12 + 8  # ones, and two parts of the diagonal

library = torch.library.Library("kfuzz_suites", "DEF")
library.define("twice(Tensor x) -> Tensor")
for key in ("CPU", "CUDA"):
    library.impl("twice", lambda x: k.add(x, x), key)
assert torch.ops.kfuzz_suites.twice(square).sum() == 32

scale = torch.tensor(3.0, device="cuda", requires_grad=True)
rows = torch.rand(3, 47, device="cuda")
torch.compile(lambda r, s: (r / s).clamp(max=1).sum() / s)(rows, scale).backward()
assert scale.grad is not None
