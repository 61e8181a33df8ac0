"""The Triton quantize_4bit reads a transposed matrix in the order of its memory.

package: bitsandbytes
operator: bitsandbytes.backends.triton.ops.quantize_4bit, of the XPU backend
input: the transpose of a matrix of 64 x 64, float32, blocks of 64, nf4
expected: the codes of its contiguous copy, as the CUDA backend gives
actual: those of the matrix that was transposed
line: bitsandbytes/backends/triton/ops.py:93: A goes to the kernel as it lies in memory;
  A.contiguous() mends it, as quantize_blockwise of the same file has it
since: 0.48.0
last: 0.50.2
state: known upstream, bitsandbytes-foundation/bitsandbytes#1690 (mended for CUDA)
finite: yes
device: cuda
"""

import torch

if not torch.cuda.is_available():
    raise SystemExit(77)
from bitsandbytes.backends.triton.ops import quantize_4bit

x = torch.arange(4096.0, device="cuda").view(64, 64).T
expected, _ = quantize_4bit(x.contiguous(), 64, "nf4", torch.uint8)
actual, _ = quantize_4bit(x, 64, "nf4", torch.uint8)
print("expected", expected[-4:].flatten().tolist())
print("actual", actual[-4:].flatten().tolist())
raise SystemExit(bool((actual != expected).any()))
