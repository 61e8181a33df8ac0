"""LigerReLUSquared loses NaN: the forward pass gives 0 for it.

package: liger-kernel
operator: liger_kernel.ops.relu_squared.LigerReLUSquaredFunction
input: x = [nan], float32, one element: an activation that overflowed before
expected: nan, as torch.relu(x) ** 2, which apply_liger_kernel_to_nemotron replaces by
  it; a check of the loss for NaN then misses it
actual: 0.0
line: liger_kernel/ops/relu_squared.py:27: tl.maximum(x, 0) returns the other operand;
  propagate_nan=tl.PropagateNan.ALL mends it
since: 0.8.0
last: 0.8.5
state: new
finite: no
device: any
"""

import torch
from liger_kernel.ops.relu_squared import LigerReLUSquaredFunction

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.tensor([[float("nan")]], device=device)

expected = torch.relu(x) ** 2
actual = LigerReLUSquaredFunction.apply(x)

print("expected", expected.item())
print("actual", actual.item())
raise SystemExit(0 if actual.isnan().all() else 1)
