"""fla's elu + 1 turns NaN into 1 on a GPU.

package: fla-core
needs: einops==0.8.2
operator: fla.modules.activations.elu_p1
input: x = [nan], float32, one element: a query or key of DeltaNet or LinearAttention
  once training has diverged, which a check for NaN then misses
expected: nan, as torch.nn.functional.elu(x) + 1, and as elu_p1 itself on a CPU
actual: 1.0
line: fla/modules/activations/ops.py:168: tl.minimum(nan, 0) is 0, and exp(0) is 1;
  propagate_nan=tl.PropagateNan.ALL mends it
since: 0.6.0
last: 0.6.0
state: new
finite: no
device: cuda
"""

import torch
from fla.modules.activations import elu_p1

if not torch.cuda.is_available():
    raise SystemExit(77)
x = torch.tensor([[float("nan")]], device="cuda")

expected = torch.nn.functional.elu(x) + 1
actual = elu_p1(x)

print("expected", expected.item())
print("actual", actual.item())
raise SystemExit(0 if actual.isnan().all() else 1)
