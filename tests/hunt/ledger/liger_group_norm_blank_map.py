"""LigerGroupNorm takes the variance as a difference: of a blank map it can be negative.

package: liger-kernel
operator: liger_kernel.ops.group_norm.LigerGroupNormFunction
input: 1,000 pictures of one channel, float32, 1 x 15 x 15, each of one value, from 1 to
  100, as a blank picture's or padding's are; one group, eps = 1e-6, its default
expected: 0 up to 0.004, as torch.nn.functional.group_norm, with whose GroupNorm its
  authors claim parity (linkedin/Liger-Kernel#353)
actual: nan for some hundred of the pictures, those whose variance rounds below -eps
line: liger_kernel/ops/group_norm.py:75: squared_sum / hidden_size - m * m cancels; the
  sum of (X - m) ** 2 in a second pass is never negative
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
values = torch.linspace(1, 100, 1000, device="cuda")
x = values.view(-1, 1, 1, 1).expand(-1, 1, 15, 15).contiguous()
one = torch.ones(1, device="cuda")

expected = torch.nn.functional.group_norm(x, 1, one, one * 0, 1e-6)
actual = LigerGroupNormFunction.apply(x, one, one * 0, 1, 1, 1e-6)

print("expected", expected.abs().max().item(), "at most")
print("actual", actual.isnan().flatten(1).any(1).sum().item(), "pictures of nan")
raise SystemExit(1 if actual.isnan().any() else 0)
