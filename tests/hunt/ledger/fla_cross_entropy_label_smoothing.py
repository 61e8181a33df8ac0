"""FusedCrossEntropy adds logits up before it takes their difference: digits are lost.

package: fla-core
needs: einops==0.8.2
operator: fla.modules.fused_cross_entropy.cross_entropy_loss
input: logits = [10003, 10000] 100 times over, float32, one row; label_smoothing = 0.1
expected: 4.8037576, as torch.nn.functional.cross_entropy, to 6 digits in float32
actual: 4.80273: wrong by 0.001, 8,000 times as much as torch in float32
line: fla/modules/fused_cross_entropy/ops.py:72: b_sum adds logits with what they have
  in common, 2e6 here; b_lse and the target's logit are subtracted as late
since: 0.5.1
last: 0.6.0
state: new
finite: yes
device: any
"""

import torch
from fla.modules.fused_cross_entropy import cross_entropy_loss

device = "cuda" if torch.cuda.is_available() else "cpu"
logits = torch.tensor([[10003.0, 10000.0] * 100], device=device)
target = torch.tensor([0], device=device)

loss = torch.nn.functional.cross_entropy
expected = loss(logits.double(), target, label_smoothing=0.1).item()
torchs = loss(logits, target, label_smoothing=0.1).item()
actual = cross_entropy_loss(logits, target, label_smoothing=0.1)[0].item()

print("expected", expected, "(torch in float32:", torchs, ")")
print("actual", actual)
raise SystemExit(0 if abs(actual - expected) < 2e-4 else 1)
