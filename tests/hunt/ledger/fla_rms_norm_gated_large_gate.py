"""The gated RMS norm multiplies by the gate before its sigmoid: inf * 0 is NaN.

package: fla-core
needs: einops==0.8.2
operator: fla.modules.norm.fused_norm_gate.rms_norm_gated
input: x = [0, 8], gate = [-1e38, -1e38], weight = [4, 4], float32
expected: zeros, as torch.nn.functional.silu(gate) is 0
actual: nan where x is 8
line: fla/modules/norm/fused_norm_gate.py:98: b_y * b_g * tl.sigmoid(b_g)
since: 0.6.0
last: 0.6.0
state: new
finite: no
device: cuda
"""

import torch
from fla.modules.norm.fused_norm_gate import rms_norm_gated

if not torch.cuda.is_available():  # the interpreter alone does not run it
    raise SystemExit(77)
device = "cuda"
x = torch.tensor([[0.0, 8.0]], device=device)
gate = torch.full_like(x, -1e38)
weight = torch.full((2,), 4.0, device=device)

normal = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight
expected = normal * torch.nn.functional.silu(gate)
actual = rms_norm_gated(x, gate, weight, None)

print("expected", expected.tolist())
print("actual", actual.tolist())
raise SystemExit(1 if actual.isnan().any() else 0)
