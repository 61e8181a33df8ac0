"""Columnwise float8 of torchao's groups leaves rows of a large group unwritten.

package: torchao
operator: torchao.prototype.moe_training.kernels.jagged_float8_scales.
  triton_fp8_per_group_colwise_scales
input: 2 * ones of 512 x 32, float32; groups of 384 and 128 rows
expected: 448 everywhere, as each column is scaled to the largest float8
actual: rows 256 to 383 are whatever the memory held
line: torchao/prototype/moe_training/kernels/jagged_float8_scales.py:315: max_group_size
  is the mean size of a group, rounded up, though its own comment asks for the largest;
  the kernel takes no more rows of a group than that
since: 0.18.0
last: 0.18.0
state: new
finite: yes
device: cuda
"""

import torch
from torch.utils._triton import has_triton

if not has_triton():
    raise SystemExit(77)
from torchao.prototype.moe_training.kernels import jagged_float8_scales as kernels

x = torch.full((512, 32), 2.0, device="cuda")
ends = torch.tensor([384, 512], device="cuda", dtype=torch.int32)
y, _ = kernels.triton_fp8_per_group_colwise_scales(x, ends)
wrong = (y.float() != 448).any(1).nonzero().flatten()

print("expected 448 in every row")
print("actual", len(wrong), "rows wrong:", wrong[:1].tolist(), wrong[-1:].tolist())
raise SystemExit(1 if len(wrong) else 0)
