"""FusedLinearCrossEntropy multiplies its kept gradients again with each backward pass.

package: fla-core
needs: einops==0.8.2
operator: fla.modules.fused_linear_cross_entropy.fused_linear_cross_entropy_loss
input: x = ones of 2 x 4, weight = zeros of 3 x 4, float32; target = [0, 1]; the
  gradient of 3 * loss by weight, twice through a kept graph
expected: the same gradient the second time, as of any loss whose graph is kept
actual: 3 times the first
line: fla/modules/fused_linear_cross_entropy/ops.py:239: elementwise_mul_kernel scales
  the saved tensors in place, and its comment expects repeated backward passes; scaling
  a copy of them is right
since: 0.3.2
last: 0.6.0
state: new
finite: yes
device: any
"""

import torch
from fla.modules.fused_linear_cross_entropy import fused_linear_cross_entropy_loss

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.ones(2, 4, device=device, requires_grad=True)
weight = torch.zeros(3, 4, device=device, requires_grad=True)
target = torch.tensor([0, 1], device=device)

loss = 3 * fused_linear_cross_entropy_loss(x, target, weight)
expected = torch.autograd.grad(loss, weight, retain_graph=True)[0].clone()
actual = torch.autograd.grad(loss, weight)[0]

print("expected", expected.tolist())
print("actual", actual.tolist())
raise SystemExit(0 if torch.allclose(actual, expected) else 1)
