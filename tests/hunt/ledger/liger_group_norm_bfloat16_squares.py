"""LigerGroupNorm squares in bfloat16: rows around 100 become NaN.

package: liger-kernel
operator: liger_kernel.ops.group_norm.LigerGroupNormFunction
input: x of 100, 100.5, 101, 101.5, repeated, bfloat16, 1 x 2 x 64, two groups
expected: from -1.34 to 1.34, as torch.nn.functional.group_norm in float64
actual: nan: the variance comes out as -6.6
line: liger_kernel/ops/group_norm.py:70: X * X is rounded to 8 bits before the sum; X in
  float32 mends it
since: 0.4.1
last: 0.8.5
state: new
finite: yes
device: cuda
"""

import torch
from liger_kernel.ops.group_norm import LigerGroupNormFunction

if not torch.cuda.is_available():  # the interpreter alone does not run it
    raise SystemExit(77)
device = "cuda"
x = (100 + torch.arange(128) % 4 / 2).reshape(1, 2, 64).bfloat16().to(device)
weight = torch.ones(2, device=device, dtype=x.dtype)

expected = torch.nn.functional.group_norm(x.double(), 2, eps=1e-6)
actual = LigerGroupNormFunction.apply(x, weight, weight * 0, 2, 2, 1e-6)

print("expected", expected[0, 0, :4].tolist())
print("actual", actual[0, 0, :4].tolist())
raise SystemExit(0 if torch.allclose(actual.double(), expected, atol=0.2) else 1)
