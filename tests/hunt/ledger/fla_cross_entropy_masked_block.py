"""FusedCrossEntropy is NaN if one block of 65,536 logits of a row is masked.

package: fla-core
needs: einops==0.8.2
operator: fla.modules.fused_cross_entropy.cross_entropy_loss
input: logits of one row, float32: 65,536 of -inf, then 2 zeros; target = [65536];
  masked as by top-p (Dao-AILab/flash-attention#1930, a user's report of the same in its
  loss)
expected: log(2) = 0.693, as torch.nn.functional.cross_entropy
actual: nan
line: fla/modules/fused_cross_entropy/ops.py:62: b_logits - b_max is -inf - -inf, so
  that the block's part is nan and not -inf, and so is what the blocks are reduced to;
  to take 0 for a maximum of -inf mends it
since: 0.3.2
last: 0.6.0
state: new
finite: no
device: any
"""

import torch
from fla.modules.fused_cross_entropy import cross_entropy_loss

device = "cuda" if torch.cuda.is_available() else "cpu"
logits = torch.zeros(1, 65536 + 2, device=device)
logits[:, :65536] = float("-inf")
target = torch.tensor([65536], device=device)

expected = torch.nn.functional.cross_entropy(logits.double(), target).item()
actual = cross_entropy_loss(logits, target)[0].item()

print("expected", expected)
print("actual", actual)
raise SystemExit(0 if abs(actual - expected) < 1e-3 else 1)
