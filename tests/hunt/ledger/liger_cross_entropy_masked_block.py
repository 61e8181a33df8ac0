"""LigerCrossEntropy is NaN if the first 32,768 logits of a row are masked.

package: liger-kernel
operator: liger_kernel.ops.cross_entropy.LigerCrossEntropyFunction
input: logits of one row, float32: 131,072 of -inf (4 blocks; older releases have longer
  ones), then 2 zeros; target = [131072]; masked as by top-p
  (Dao-AILab/flash-attention#1930, a user's report of the same in its loss)
expected: log(2) = 0.693, as torch.nn.functional.cross_entropy
actual: nan
line: liger_kernel/ops/cross_entropy.py:184: m, the running maximum, minus m_new is -inf
  - -inf while all logits were masked; 0 for an m_new of -inf mends it;
  liger_kernel/ops/grpo_loss.py:58 has the same, in blocks of 2,048
since: 0.5.5
last: 0.8.5
state: new
finite: no
device: any
"""

import torch
from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

device = "cuda" if torch.cuda.is_available() else "cpu"
logits = torch.zeros(1, 131072 + 2, device=device)  # an older release has longer blocks
logits[:, :131072] = float("-inf")
target = torch.tensor([131072], device=device)

expected = torch.nn.functional.cross_entropy(logits.double(), target)
actual = LigerCrossEntropyFunction.apply(logits, target, None)
actual = actual[0] if isinstance(actual, tuple) else actual

print("expected", expected.item())
print("actual", actual.item())
raise SystemExit(0 if torch.allclose(actual.double(), expected) else 1)
