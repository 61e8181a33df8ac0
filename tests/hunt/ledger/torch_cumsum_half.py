"""Cumulative sums of half precision are kept in half precision on CUDA.

package: torch
operator: torch.cumsum
input: a column of 4,096 ones beside two more, float16, summed along it
expected: 4096 in the last row, as on the CPU
actual: 2048: one more 1 does not change it
line: aten/src/ATen/native/cuda/ScanUtils.cuh: the scan adds in the tensor's format
since: 2.11.0
last: 2.11.0
state: new
finite: yes
device: cuda
"""

import torch

if not torch.cuda.is_available():
    raise SystemExit(77)
x = torch.ones(4096, 3, dtype=torch.float16)
expected = torch.cumsum(x, 0)[-1, 0].item()
actual = torch.cumsum(x.cuda(), 0)[-1, 0].item()
print("expected", expected)
print("actual", actual)
raise SystemExit(abs(actual - expected) > 64)
