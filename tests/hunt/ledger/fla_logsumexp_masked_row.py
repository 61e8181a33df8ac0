"""logsumexp_fwd is NaN for a row of which every element is -infinity.

package: fla-core
needs: einops==0.8.2
operator: fla.ops.utils.logsumexp.logsumexp_fwd
input: x = [-inf, -inf], float32, one row
expected: -inf, as torch.logsumexp
actual: nan
line: fla/ops/utils/logsumexp.py:45: b_x - b_m is -inf - -inf
since: 0.3.2
last: 0.6.0
state: new
finite: no
device: cuda
"""

import torch
from fla.ops.utils.logsumexp import logsumexp_fwd

if not torch.cuda.is_available():  # the interpreter alone does not run it
    raise SystemExit(77)
device = "cuda"
x = torch.full((1, 2), float("-inf"), device=device)

expected = torch.logsumexp(x, -1).item()
actual = logsumexp_fwd(x).item()

print("expected", expected)
print("actual", actual)
raise SystemExit(0 if actual == expected else 1)
