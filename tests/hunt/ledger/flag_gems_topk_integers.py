"""The smallest integers come with repeated values and indices beyond the row.

package: flag-gems
needs: sqlalchemy==2.0.44 pyyaml==6.0.4
operator: flag_gems.topk, largest=False
input: x = [0, 1], int64, k = 2
expected: values 0, 1 at 0, 1
actual: values 0, 0 at 0, 2
line: flag_gems/ops/topk.py:101: _get_finfo_val knows no integer format and returns
  None, so that masked elements are undefined, 0 here; _get_iinfo_val is never asked
since: 4.2.0
last: 5.0.2
state: new
finite: yes
device: cuda
"""

import torch

if not torch.cuda.is_available():
    raise SystemExit(77)
import flag_gems

x = torch.tensor([0, 1], device="cuda")
expected, actual = (
    torch.topk(x, 2, -1, False, True),
    flag_gems.topk(x, 2, -1, False, True),
)
print("expected", [part.tolist() for part in expected])
print("actual", [part.tolist() for part in actual])
raise SystemExit(not torch.equal(expected[0], actual[0]))
