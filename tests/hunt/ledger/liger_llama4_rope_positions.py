"""LigerLlama4Rope turns every item of a batch by the angles of the first.

package: liger-kernel
operator: liger_kernel.ops.llama4_rope.LigerLlama4RopeFunction
input: q = k = ones of 2 x 1 x 1 x 4, float32; angles of 0 for the first item, 1 for the
  second, as freqs_cis of 2 x 1 x 2, which transformers makes of position_ids
expected: each item turned by its own angles, as apply_rotary_emb of transformers
actual: the second item is not turned
line: liger_kernel/ops/llama4_rope.py:119: freqs_cis[:seq_len] drops all items but one,
  and the kernel takes its row of angles by the place in the sequence alone
since: 0.6.2
last: 0.8.5
state: new
finite: yes
device: any
"""

import torch
from liger_kernel.ops.llama4_rope import LigerLlama4RopeFunction

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.ones(2, 1, 1, 4, device=device)
angles = torch.tensor([0.0, 1.0], device=device).reshape(2, 1, 1).expand(2, 1, 2)
turns = torch.polar(torch.ones_like(angles), angles)

pairs = torch.view_as_complex(x.reshape(2, 1, 1, 2, 2))
expected = torch.view_as_real(pairs * turns[:, :, None]).flatten(3)
actual, _ = LigerLlama4RopeFunction.apply(x.clone(), x.clone(), turns)

print("expected", expected[1].flatten().tolist())
print("actual", actual[1].flatten().tolist())
raise SystemExit(0 if torch.allclose(actual, expected, atol=1e-5) else 1)
