"""LigerTVD raises ZeroDivisionError for a batch of which every label is ignored.

package: liger-kernel
operator: liger_kernel.ops.tvd.LigerTVDLossFunction
input: p = q = [[0.5, 0.5]], float32; shift_labels = [-100]: a small batch whose answers
  were all cut off
expected: a loss, 0 as LigerJSD gives for such a batch; the same crash of the fused
  cross-entropy was mended (linkedin/Liger-Kernel#177)
actual: ZeroDivisionError: float division by zero
line: liger_kernel/ops/tvd.py:130: 1.0 / n_non_ignore, on the host
since: 0.8.0
last: 0.8.5
state: new
finite: yes
device: any
"""

import torch
from liger_kernel.ops.tvd import LigerTVDLossFunction

device = "cuda" if torch.cuda.is_available() else "cpu"
p = torch.full((1, 2), 0.5, device=device)
labels = torch.tensor([-100], device=device)

print("expected", 0.0)
try:
    loss = LigerTVDLossFunction.apply(p, p.clone(), labels)
except ZeroDivisionError as error:
    print("actual", repr(error))
    raise SystemExit(1) from None
print("actual", loss.item())
raise SystemExit(0)
