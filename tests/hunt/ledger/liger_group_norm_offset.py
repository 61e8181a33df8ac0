"""LigerGroupNorm takes the variance as a difference: a mean of 10,000 makes it NaN.

package: liger-kernel
operator: liger_kernel.ops.group_norm.LigerGroupNormFunction
input: x = 10,000 + normal values of spread 0.1, float32, 1 x 2 x 64, two groups
expected: as torch.nn.functional.group_norm in float64, at most 4 in magnitude
actual: nan, or wrong in the first digit: the variance, 0.01, is less than the rounding
  of 10^8
line: liger_kernel/ops/group_norm.py:75: squared_sum / hidden_size - m * m cancels; a
  second pass over X - m mends it
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
torch.manual_seed(0)
x = (10_000 + torch.randn(1, 2, 64) / 10).to(device)
weight, bias = torch.ones(2, device=device), torch.zeros(2, device=device)

expected = torch.nn.functional.group_norm(x.double(), 2, eps=1e-6)
actual = LigerGroupNormFunction.apply(x, weight, bias, 2, 2, 1e-6)

print("expected", expected[0, 0, :4].tolist())
print("actual", actual[0, 0, :4].tolist())
raise SystemExit(0 if torch.allclose(actual.double(), expected, atol=0.1) else 1)
