"""The residual that comes back is the normalised row: both are one tensor.

package: conch-triton-kernels
operator: conch.ops.normalization.gemma_rms_norm.gemma_rms_norm, with a residual
input: x = [1, 1], residual = [1, 1], weight 0, float32
expected: the sum as the new residual: 2, 2
actual: 1, 1: the norm is taken in place of the tensor that is returned as residual
line: conch/ops/normalization/gemma_rms_norm.py:20: residual = x, and the launcher then
  works in place; x.clone() mends it; its reference, which is not in place, returns 2, 2
since: 0.0.1
last: 1.3
state: new
finite: yes
device: any
"""

import torch
from conch.ops.normalization.gemma_rms_norm import gemma_rms_norm

device = "cuda" if torch.cuda.is_available() else "cpu"
x, residual = torch.ones(1, 2, device=device), torch.ones(1, 2, device=device)
_, actual = gemma_rms_norm(x, torch.zeros(2, device=device), 1e-6, residual)
print("expected", [[2.0, 2.0]])
print("actual", actual.tolist())
raise SystemExit(bool((actual - 2).abs().max() > 0.01))
