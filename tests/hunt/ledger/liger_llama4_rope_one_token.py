"""LigerLlama4Rope turns one token of a batch at addresses of another item.

package: liger-kernel
operator: liger_kernel.ops.llama4_rope.LigerLlama4RopeFunction
input: q of 2 x 1 x 2 x 4 (B S H D), float32, a transposed tensor of B H S D: two items
  of one token; a half turn
expected: -q in every item
actual: the second head of the first item is turned twice, the last one never
line: liger_kernel/ops/llama4_rope.py:141: q.stride(1) as what lies between tokens; of
  one token contiguous() keeps any stride, and here it is that of a head
since: 0.6.2
last: 0.8.5
state: new
finite: yes
device: any
"""

import torch
from liger_kernel.ops.llama4_rope import LigerLlama4RopeFunction

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.arange(1.0, 17.0, device=device).reshape(2, 2, 1, 4)
turns = torch.full((1, 2), -1.0 + 0.0j, device=device)
q, k = x.clone().transpose(1, 2), x.clone().transpose(1, 2)
actual, _ = LigerLlama4RopeFunction.apply(q, k, turns)
expected = -x.transpose(1, 2)
print("expected", expected.flatten().tolist())
print("actual", actual.flatten().tolist())
raise SystemExit(0 if torch.allclose(actual, expected) else 1)
