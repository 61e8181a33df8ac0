"""LigerCrossEntropy returns the logits as their gradient if they are column-major.

package: liger-kernel
operator: liger_kernel.ops.cross_entropy.LigerCrossEntropyFunction
input: x = [[0, 1], [2, 3]].T as logits, float32, strides (1, 2); target = [0, 1]
expected: the gradient of torch.nn.functional.cross_entropy
actual: the logits themselves
line: liger_kernel/ops/cross_entropy.py:459: HAS_GRADIENTS asks the copy made by
  contiguous(), which inside a forward of autograd requires no gradient; the tensor
  before it has to be asked
since: 0.6.3
last: 0.8.5
state: new
finite: yes
device: any
"""

import torch
from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

device = "cuda" if torch.cuda.is_available() else "cpu"
values = torch.arange(4.0, device=device).reshape(2, 2)
target = torch.tensor([0, 1], device=device)

expected_of = values.clone().requires_grad_()
torch.nn.functional.cross_entropy(expected_of.T, target).backward()

x = values.clone().requires_grad_()
loss = LigerCrossEntropyFunction.apply(x.T, target, None)
(loss[0] if isinstance(loss, tuple) else loss).backward()

print("expected", expected_of.grad.tolist())
print("actual", x.grad.tolist())
raise SystemExit(0 if torch.allclose(x.grad, expected_of.grad, atol=1e-5) else 1)
