"""Keys beyond the last whole block of 64 take part in the softmax as zeros.

package: sageattention
operator: sageattention.sageattn, is_causal=False
input: one head of 64, all queries and keys 0, 65 values of 1, float16
expected: 1, the mean of the values
actual: about 0.51: the mean of 65 ones and 63 zeros
line: sageattention/attn_qk_int8_per_block.py:18: qk is never masked by k_mask, so that
  padded keys have a score of 0; they want -inf
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
q = torch.zeros(1, 1, 65, 64, dtype=torch.float16, device="cuda")
k, v = torch.zeros_like(q), torch.ones_like(q)
expected = torch.nn.functional.scaled_dot_product_attention(q, k, v)
actual = sageattn(q, k, v, smooth_k=False)
print("expected", expected[0, 0, 0, 0].item())
print("actual", actual[0, 0, 0, 0].item())
raise SystemExit(bool((actual - expected).abs().max() > 0.05))
