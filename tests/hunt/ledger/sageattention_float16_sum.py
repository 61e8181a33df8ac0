"""Values are summed in float16 before the division: means of 1,100 overflow.

package: sageattention
operator: sageattention.sageattn
input: one head of 64, queries and keys 0, 64 values of 1100, float16
expected: 1100, the mean of the values
actual: inf: 64 times 1100 is above 65504
line: sageattention/attn_qk_int8_per_block.py:31: tl.dot(p, v, out_dtype=tl.float16)
since: 1.0.0
last: 1.0.6
state: new
finite: yes
device: cuda
"""

import torch
from sageattention import sageattn

if not torch.cuda.is_available():
    raise SystemExit(77)
q = torch.zeros(1, 1, 64, 64, dtype=torch.float16, device="cuda")
k, v = torch.zeros_like(q), torch.full_like(q, 1100)
actual = sageattn(q, k, v, smooth_k=False)
print("expected", 1100.0)
print("actual", actual[0, 0, 0, 0].item())
raise SystemExit(bool((actual - 1100).abs().max() > 10))
