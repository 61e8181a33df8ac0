"""LigerFusedLinearCrossEntropy gives the weight no gradient if the input needs none.

package: liger-kernel
operator: liger_kernel.ops.fused_linear_cross_entropy.
  LigerFusedLinearCrossEntropyFunction
input: x = ones of 2 x 4 without gradient, weight = zeros of 3 x 4 with; target = [0, 1]
expected: the gradient of torch.nn.functional.cross_entropy(x @ weight.T, target)
actual: None, silently: a head on frozen features does not learn
line: liger_kernel/ops/fused_linear_cross_entropy.py:114: input_requires_grad decides on
  all gradients, though weight_needs_grad is at hand; with reduction="none" the weight's
  is asked for, too
since: 0.6.4
last: 0.8.5
state: new
finite: yes
device: any
"""

import torch
from liger_kernel.ops.fused_linear_cross_entropy import (
    LigerFusedLinearCrossEntropyFunction as Loss,
)

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.ones(2, 4, device=device)
weight = torch.zeros(3, 4, device=device, requires_grad=True)
target = torch.tensor([0, 1], device=device)

loss = torch.nn.functional.cross_entropy(x @ weight.T, target)
expected = torch.autograd.grad(loss, weight)[0]
loss = Loss.apply(x, weight, target)
(loss[0] if isinstance(loss, tuple) else loss).backward()

print("expected", expected.tolist())
print("actual", weight.grad)
raise SystemExit(1 if weight.grad is None else 0)
