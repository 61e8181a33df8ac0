"""LigerCrossEntropy overwrites the logits of ignored rows when only evaluating.

package: liger-kernel
operator: liger_kernel.ops.cross_entropy.LigerCrossEntropyFunction
input: logits = [[1, 2], [3, 4]], float32, under torch.no_grad(); target = [0, -100],
  the default ignore_index, as of a prompt's or a padding's token
expected: the logits are as before, as no gradient is asked for
actual: the row of -100 is [0, 0]
line: liger_kernel/ops/cross_entropy.py:108: gradients are stored over the logits; that
  of an ignored row, 0, is stored without asking HAS_GRADIENTS, which all others ask
  since 0.6.3
since: 0.5.5
last: 0.8.5
state: known upstream, linkedin/Liger-Kernel#343 (closed: 0.6.3 mended it for the other
  rows)
finite: yes
device: any
"""

import torch
from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

device = "cuda" if torch.cuda.is_available() else "cpu"
logits = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
target = torch.tensor([0, -100], device=device)

expected = logits.clone()
with torch.no_grad():
    LigerCrossEntropyFunction.apply(logits, target, None)

print("expected", expected.tolist())
print("actual", logits.tolist())
raise SystemExit(0 if torch.equal(logits, expected) else 1)
