"""A NaN among the first elements of a row beyond 131,072 is lost by softmax.

package: flag-gems
needs: sqlalchemy==2.0.44 pyyaml==6.0.4
operator: flag_gems.softmax
input: a row of 131073 zeros with a NaN at 0, float32, as logits of a model that
  overflowed
expected: nan everywhere, as torch.softmax, whose overload it replaces
actual: numbers everywhere but in the NaN's place
line: flag_gems/ops/softmax.py:124: longer rows go tile by tile; in the first one the
  maximum so far is -inf, tl.maximum(-inf, nan) stays it, and where it is, all_neg_inf,
  made for rows of -inf (flagos-ai/FlagGems#330), leaves the NaN out of the sum
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

x = torch.zeros(1, 131073, device="cuda")
x[0, 0] = float("nan")
expected, actual = (
    torch.softmax(x, -1).flatten()[:3],
    flag_gems.softmax(x, -1).flatten()[:3],
)
print("expected", expected.tolist())
print("actual", actual.tolist())
raise SystemExit(not torch.equal(expected.nan_to_num(7), actual.nan_to_num(7)))
