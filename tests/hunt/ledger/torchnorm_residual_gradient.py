"""The gradient that reaches the residual stream is dropped in the backward pass.

package: torchnorm
operator: torchnorm._triton.fused_add_rms_norm, of torchnorm.FusedAddRMSNorm
input: x = [1, 2], residual = [0, 0]; the sum of the updated residual is differentiated
expected: a gradient of 1 for each element of x
actual: 0
line: torchnorm/_triton.py:177: backward(ctx, dy, dr_pass) never reads dr_pass; adding
  it to both gradients mends it
since: 0.1.0
last: 0.1.2
state: new
finite: yes
device: any
"""

import torch
from torchnorm._triton import fused_add_rms_norm

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.tensor([[1.0, 2.0]], device=device, requires_grad=True)
weight = torch.ones(2, device=device)
_, updated = fused_add_rms_norm(x, torch.zeros_like(x), weight, 1e-6)
updated.sum().backward()
print("expected", [1.0, 1.0])
print("actual", x.grad[0].tolist())
raise SystemExit(bool((x.grad - 1).abs().max() > 0.01))
