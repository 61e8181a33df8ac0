"""The updated residual of float32 comes back rounded to bfloat16.

package: torchnorm
operator: torchnorm._triton.fused_add_rms_norm, of torchnorm.FusedAddRMSNorm
input: x = [1, 1], residual = [0.001, 0.001], float32
expected: x + residual = 1.001
actual: 1.0
line: torchnorm/_triton.py:122: tl.store(R_OUT ..., h.to(tl.bfloat16)), whatever the
  format; h alone mends it
since: 0.1.2
last: 0.1.2
state: new
finite: yes
device: any
"""

import torch
from torchnorm._triton import fused_add_rms_norm

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.ones(1, 2, device=device)
residual = torch.full_like(x, 0.001)
_, updated = fused_add_rms_norm(x, residual, torch.ones(2, device=device), 1e-6)
print("expected", (x + residual)[0, 0].item())
print("actual", updated[0, 0].item())
raise SystemExit(bool((updated - x - residual).abs().max() > 1e-5))
