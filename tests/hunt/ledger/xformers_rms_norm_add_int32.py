"""Rows beyond 2^31 elements are read at a wrapped address; rms_norm's own are not.

package: xformers
operator: xformers.ops.rmsnorm.rms_norm_add
input: 2^19 + 1 rows of 4,096, bfloat16 (4.3 GB), ones added to zeros: 32 sequences of
  16,384 tokens and one more token
expected: ones in every row, as of rms_norm
actual: an illegal access, or a last row that is not written
line: xformers/ops/_triton/rmsnorm_kernels.py:62: row is not made 64 bits wide, as line
  25 makes it
since: 0.0.22
last: 0.0.35
state: new
finite: yes
device: cuda
"""

import torch
from xformers.ops.rmsnorm import rms_norm_add

if not torch.cuda.is_available() or torch.cuda.mem_get_info()[0] < 30e9:
    raise SystemExit(77)
x = torch.ones(2**19 + 1, 4096, dtype=torch.bfloat16, device="cuda")
print("expected", 1.0)
try:
    actual = rms_norm_add(x, torch.zeros_like(x), x[0].clone())
    print("actual", last := actual[-1].float().mean().item())
except RuntimeError as error:
    print("actual", str(error).splitlines()[0])
    raise SystemExit(1) from None
raise SystemExit(abs(last - 1) > 0.01)
