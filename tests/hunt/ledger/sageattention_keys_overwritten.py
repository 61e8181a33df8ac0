"""The caller's keys are overwritten: their mean is subtracted in place.

package: sageattention
operator: sageattention.sageattn, with its default smooth_k=True
input: one head of 64, 64 keys of 1, float16
expected: the keys are 1 after the call
actual: they are 0
line: sageattention/core.py:91: k -= km; k - km mends it, as 1.0.4 had it
since: 1.0.5
last: 1.0.6
state: new
finite: yes
device: cuda
"""

import torch
from sageattention import sageattn

if not torch.cuda.is_available():
    raise SystemExit(77)
q = torch.ones(1, 1, 64, 64, dtype=torch.float16, device="cuda")
k, v = torch.ones_like(q), torch.ones_like(q)
sageattn(q, k, v)
print("expected", 1.0)
print("actual", k[0, 0, 0, 0].item())
raise SystemExit(bool((k != 1).any()))
