"""LigerSparsemax adds rows up without taking off their maximum: sums are not 1.

package: liger-kernel
operator: liger_kernel.ops.sparsemax.LigerSparsemaxFunction
input: 32,768 equal logits of 1,000, float32, one row
expected: 1 / 32768 each, with sum 1: sparsemax(x + c) = sparsemax(x)
actual: a sum of 2; with logits of 10,000 a sum of 0
line: liger_kernel/ops/sparsemax.py:43: cssv is 3.3e7, from which 1 cannot be taken in
  float32
since: 0.5.10
last: 0.8.5
state: new
finite: yes
device: any
"""

import torch
from liger_kernel.ops.sparsemax import LigerSparsemaxFunction

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.full((1, 32768), 1000.0, device=device)

expected = 1.0
actual = LigerSparsemaxFunction.apply(x, -1).double().sum().item()

print("expected", expected)
print("actual", actual)
raise SystemExit(0 if abs(actual - expected) < 1e-2 else 1)
