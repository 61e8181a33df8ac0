"""LigerRope turns one token of a batch at addresses of another item.

package: liger-kernel
operator: liger_kernel.ops.rope.LigerRopeFunction
input: q of 2 x 2 x 1 x 4 (B H S D), float32, contiguous: two items of one token, as in
  decoding; a half turn
expected: -q in every item
actual: the second head of the first item is turned twice, the last one never
line: liger_kernel/ops/rope.py:177: q.stride(1) as what lies between tokens; of one
  token torch calls any stride contiguous, and here it is that of a head
since: 0.0.0
last: 0.8.5
state: new
finite: yes
device: any
"""

import torch
from liger_kernel.ops.rope import LigerRopeFunction

device = "cuda" if torch.cuda.is_available() else "cpu"
q = torch.arange(1.0, 17.0, device=device).reshape(2, 2, 1, 4)
cos = torch.full((1, 1, 4), -1.0, device=device)
actual, _ = LigerRopeFunction.apply(q.clone(), q.clone(), cos, torch.zeros_like(cos))
print("expected", (-q).flatten().tolist())
print("actual", actual.flatten().tolist())
raise SystemExit(0 if torch.equal(actual, -q) else 1)
