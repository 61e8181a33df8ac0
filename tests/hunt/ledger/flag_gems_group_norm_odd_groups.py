"""Groups whose elements are no power of two are normalised wrongly.

package: flag-gems
needs: sqlalchemy==2.0.44 pyyaml==6.0.4
operator: flag_gems.group_norm
input: 10 channels in 2 groups of 5, one value a channel: zeros but x[7] = 1, float32
expected: zeros in the first group, whose channels are all zero, as
  torch.native_group_norm
actual: -0.375 in the first group: channels 5 to 7 of the next one count, too
line: flag_gems/ops/groupnorm.py:42: the mask ends at the last channel; it must end at
  the group's last one, too
since: 4.2.0
last: 5.0.2
state: known upstream, flagos-ai/FlagGems#4984
finite: yes
device: cuda
"""

import torch

if not torch.cuda.is_available():
    raise SystemExit(77)
import flag_gems

x = torch.zeros(1, 10, 1, device="cuda")
x[0, 7] = 1
weight, bias = torch.ones(10, device="cuda"), torch.zeros(10, device="cuda")
given = (x, weight, bias, 1, 10, 1, 2, 0.1)
expected = torch.ops.aten.native_group_norm(*given)[0].flatten()
actual = flag_gems.group_norm(*given)[0].flatten()
print("expected", expected.tolist())
print("actual", actual.tolist())
raise SystemExit(bool((actual - expected).abs().max() > 0.01))
