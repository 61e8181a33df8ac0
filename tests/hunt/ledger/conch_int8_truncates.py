"""Quantization to int8 cuts fractions off instead of rounding to the nearest.

package: conch-triton-kernels
operator: conch.ops.quantization.int8.scaled_int8_quant
input: x = [0.9, -0.9], float32, scale 1
expected: 1, -1, as the kernel's comment says (scale, round, clamp) and as the operator
  of vLLM that it replaces; its own reference in torch truncates, too
actual: 0, 0
line: conch/kernels/quantization/int8.py:58: tl.clamp(...).to(tl.int8) without rounding
since: 0.0.1
last: 1.3
state: new
finite: yes
device: any
"""

import torch
from conch.ops.quantization.int8 import scaled_int8_quant

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.tensor([[0.9, -0.9]], device=device)
scale = torch.ones(1, device=device)
expected = x.round().to(torch.int8)
actual, _ = scaled_int8_quant(x, scale)
print("expected", expected.tolist())
print("actual", actual.tolist())
raise SystemExit(bool((actual != expected).any()))
