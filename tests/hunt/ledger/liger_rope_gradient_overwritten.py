"""LigerRope turns the incoming gradient in place, which other branches share.

package: liger-kernel
operator: liger_kernel.ops.rope.LigerRopeFunction
input: y = rope(q) + r, of 1 x 1 x 2 x 4 (batch, head, tokens, size), float32, r = 1 *
  leaf; a quarter turn (cos 0, sin 1); autograd hands one gradient to both summands
expected: the gradient of the leaf is the gradient of y, as d(y)/d(r) is 1
actual: the gradient of y, turned
line: liger_kernel/ops/rope.py:233: dq.contiguous(), of the transposed gradient, copies
  nothing where the gradient lies as B S H D, and the kernel stores over it; a copy
  mends it
since: 0.0.0
last: 0.8.5
state: new
finite: yes
device: any
"""

import torch
from liger_kernel.ops.rope import LigerRopeFunction

device = "cuda" if torch.cuda.is_available() else "cpu"
base = torch.ones(1, 2, 1, 4, device=device, requires_grad=True)  # B S H D
leaf = torch.ones(1, 1, 2, 4, device=device, requires_grad=True)
cos, sin = torch.zeros(1, 2, 4, device=device), torch.ones(1, 2, 4, device=device)

r, q = leaf * 1, (base * 1).transpose(1, 2)  # r first: its gradient is taken last
y = LigerRopeFunction.apply(q, torch.ones_like(leaf), cos, sin)[0] + r
expected = torch.arange(8.0, device=device).reshape(1, 2, 1, 4).transpose(1, 2)
y.backward(expected.clone())

print("expected", expected.flatten().tolist())
print("actual", leaf.grad.flatten().tolist())
raise SystemExit(0 if torch.equal(leaf.grad, expected) else 1)
