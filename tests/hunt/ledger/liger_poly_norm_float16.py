"""LigerPolyNorm raises float16 to the sixth power in float16: beyond 6.3 it is lost.

package: liger-kernel
operator: liger_kernel.ops.poly_norm.LigerPolyNormFunction
input: x = [8, 1, 2, 3], float16; weight = [1, 0, 0], bias = [0]
expected: [1.997, 0.004, 0.031, 0.105], the cubes by their root mean square
actual: zeros, as the mean square overflows to infinity
line: liger_kernel/ops/poly_norm.py:75: X_pow3 * X_pow3 is float16; the backward pass
  converts to float32 first
since: 0.6.3
last: 0.8.5
state: new
finite: yes
device: cuda
"""

import torch
from liger_kernel.ops.poly_norm import LigerPolyNormFunction

if not torch.cuda.is_available():  # the interpreter alone does not run it
    raise SystemExit(77)
device = "cuda"
x = torch.tensor([[8.0, 1.0, 2.0, 3.0]], device=device, dtype=torch.float16)
weight = torch.tensor([1.0, 0.0, 0.0], device=device, dtype=x.dtype)

cubes = x.double() ** 3
expected = cubes / cubes.square().mean().sqrt()
actual = LigerPolyNormFunction.apply(x, weight, weight[1:2], 1e-6)

print("expected", expected.tolist())
print("actual", actual.tolist())
raise SystemExit(0 if torch.allclose(actual.double(), expected, atol=1e-2) else 1)
