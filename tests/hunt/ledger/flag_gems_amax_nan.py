"""The maximum of a row with a NaN is the largest number.

package: flag-gems
needs: sqlalchemy==2.0.44 pyyaml==6.0.4
operator: flag_gems.amax
input: a row of 2 zeros with a NaN at 1, float32, as where a maximum is taken to look
  for one
expected: nan, as torch.amax, whose overload it replaces; its authors are mending
  torch.max (flagos-ai/FlagGems#6082)
actual: 0.0
line: flag_gems/ops/amax.py:80: tl.maximum(_all, a) drops NaN, and tl.max after it;
  propagate_nan=tl.PropagateNan.ALL is what tl.maximum has for it
since: 4.2.0
last: 5.0.2
state: new
finite: no
device: cuda
"""

import torch

if not torch.cuda.is_available():
    raise SystemExit(77)
import flag_gems

x = torch.zeros(1, 2, device="cuda")
x[0, 1] = float("nan")
expected, actual = (
    torch.amax(x, -1).flatten()[:3],
    flag_gems.amax(x, [-1]).flatten()[:3],
)
print("expected", expected.tolist())
print("actual", actual.tolist())
raise SystemExit(not torch.equal(expected.nan_to_num(7), actual.nan_to_num(7)))
