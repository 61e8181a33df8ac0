"""The target's logit is a sum of products rounded to the format of the embeddings.

package: cut-cross-entropy
operator: cut_cross_entropy.indexed_dot.indexed_neg_dot_forward_kernel, which
  linear_cross_entropy takes from the log-sum-exp, impl="cce"
input: an embedding of 4,096 times 1 + 2^-10, a word of 4,096 times 1.5, float16
expected: their product 6150; with one word the loss is then 0
actual: 6152, a loss of -2: each product is rounded up by 2^-11, half a spacing
line: cut_cross_entropy/indexed_dot.py:64: (e * c).to(tl.float32) multiplies in float16;
  e.to(tl.float32) * c mends it; the log-sum-exp is of a tl.dot, which does not round
  its products
since: 24.11.3
last: 25.1.1
state: new
finite: yes
device: any
"""

import torch
from cut_cross_entropy.indexed_dot import indexed_neg_dot_forward_kernel as negative

device = "cuda" if torch.cuda.is_available() else "cpu"
e = torch.full((1, 4096), 1 + 2**-10, dtype=torch.float16, device=device)
c = torch.full((1, 4096), 1.5, dtype=torch.float16, device=device)
target = torch.zeros(1, dtype=torch.int64, device=device)
expected = (e.float() @ c.float().T).item()
actual = -negative(e, c, target, out_dtype=torch.float32).item()
print("expected", expected)
print("actual", actual)
raise SystemExit(abs(actual - expected) > 0.1)
