"""Rowwise scales of torchao's float8 groups overrun their group: the mask is wrong.

package: torchao
operator: torchao.prototype.moe_training.kernels.jagged_float8_scales.
  triton_fp8_per_group_rowwise_scales
input: ones of 200 x 64, float32; groups of 32 columns each
expected: a scale of 448 for each row of both groups
actual: some of the second group are 4.48e14, of rows that the first does not have; the
  last group writes beyond the buffer
line: torchao/prototype/moe_training/kernels/jagged_float8_scales.py:231: scales_mask
  asks tl.arange(0, BLOCK_SIZE) < M, for block_row_offs < M: the last block, of 32 to
  128 rows, stores 448 / 1e-12 beyond row 200, over the next group's; 470 and 572, of
  scales by column, likewise
since: 0.13.0
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

device = "cuda"
x = torch.ones(200, 64, device=device)
ends = torch.tensor([32, 64], device=device, dtype=torch.int32)
real = torch.empty
torch.empty = lambda size, **kw: (
    real(size + 128, **kw)[:size] if isinstance(size, int) else real(size, **kw)
)  # room behind the scales, so that the overrun hits nothing else
scales = kernels.triton_fp8_per_group_rowwise_scales(x, ends)[1]
torch.empty = real
after = scales.as_strided((128,), (1,), scales.numel())
print("expected 448 for", scales.numel(), "rows, nothing beyond")
print("actual", (scales != 448).sum().item(), "wrong, beyond", after[:4].tolist())
raise SystemExit(1 if (scales != 448).any() or (after == 4.48e14).any() else 0)
