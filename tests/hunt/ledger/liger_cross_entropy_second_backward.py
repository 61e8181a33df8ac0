"""LigerCrossEntropy multiplies its kept gradient once more with each backward pass.

package: liger-kernel
operator: liger_kernel.ops.cross_entropy.LigerCrossEntropyFunction
input: logits = [[0, 1], [2, 3]], float32; target = [0, 1]; grad of 3 * loss, twice
expected: the same gradient from a second backward pass through a kept graph
actual: 3 times the first
line: liger_kernel/ops/cross_entropy.py:493: element_mul_kernel scales the saved tensor
  in place, and its comment expects several backward passes; scaling a copy of it is
  right
since: 0.5.5
last: 0.8.5
state: new
finite: yes
device: any
"""

import torch
from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.arange(4.0, device=device).reshape(2, 2).requires_grad_()
target = torch.tensor([0, 1], device=device)

loss = LigerCrossEntropyFunction.apply(x * 1, target, None)
loss = 3 * (loss[0] if isinstance(loss, tuple) else loss)
expected = torch.autograd.grad(loss, x, retain_graph=True)[0].clone()
actual = torch.autograd.grad(loss, x)[0]

print("expected", expected.tolist())
print("actual", actual.tolist())
raise SystemExit(0 if torch.allclose(actual, expected) else 1)
