"""FusedCrossEntropy adds logits up before it takes their difference: digits are lost.

package: fla-core
needs: einops==0.8.2
operator: fla.modules.fused_cross_entropy.cross_entropy_loss
input: 32,768 logits of 10,000 + normal values, float32, one row; label_smoothing = 0.1
expected: as torch.nn.functional.cross_entropy in float64, to 4 digits
actual: off by several hundredths: the sum is 3e8, with 32 between neighbours
line: fla/modules/fused_cross_entropy/ops.py:72: b_sum adds logits of any common offset
since: 0.0
last: 0.6.0
state: new
finite: yes
device: any
"""

import torch
from fla.modules.fused_cross_entropy import cross_entropy_loss

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
logits = (10_000 + torch.randn(1, 32768)).to(device)
target = torch.tensor([7], device=device)

expected = torch.nn.functional.cross_entropy(
    logits.double(), target, label_smoothing=0.1
).item()
torchs = torch.nn.functional.cross_entropy(logits, target, label_smoothing=0.1).item()
actual = cross_entropy_loss(logits, target, label_smoothing=0.1)[0].item()

print("expected", expected, "which torch in float32 misses by", abs(torchs - expected))
print("actual", actual)
raise SystemExit(0 if abs(actual - expected) < 1e-3 else 1)
