"""The index of the maximum of a row with a NaN is not the NaN's, as torch's is.

package: flag-gems
needs: sqlalchemy==2.0.44 pyyaml==6.0.4
operator: flag_gems.argmax
input: a row of 256 zeros with a NaN at 1, float32, as logits of a model that overflowed
expected: 1, as torch.argmax, whose overload it replaces; its authors are mending the
  index of torch.max (flagos-ai/FlagGems#6082)
actual: another index, of a zero: which one follows from the order of the reduction
line: flag_gems/ops/argmax.py:137: tl.max(..., return_indices=True) compares with >,
  which is false for NaN
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

x = torch.zeros(1, 256, device="cuda")
x[0, 1] = float("nan")
expected, actual = (
    torch.argmax(x, -1).flatten()[:3],
    flag_gems.argmax(x, -1).flatten()[:3],
)
print("expected", expected.tolist())
print("actual", actual.tolist())
raise SystemExit(not torch.equal(expected.nan_to_num(7), actual.nan_to_num(7)))
