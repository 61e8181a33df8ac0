"""A batch whose targets are all ignored raises instead of giving a loss.

package: cut-cross-entropy
operator: cut_cross_entropy.linear_cross_entropy, reduction="sum", impl="cce"
input: 16 embeddings, 128 words, bfloat16, all targets -100
expected: loss 0 and gradients 0, as of torch's cross_entropy
actual: an exception
line: cut_cross_entropy/tl_utils.py: b_bin_fn takes the logarithm of no rows
since: 24.11.1
last: 25.1.1
state: new
finite: yes
device: cuda
"""

import torch
from cut_cross_entropy import linear_cross_entropy

if not torch.cuda.is_available():
    raise SystemExit(77)
e = torch.ones(16, 64, dtype=torch.bfloat16, device="cuda", requires_grad=True)
c = torch.ones(128, 64, dtype=torch.bfloat16, device="cuda", requires_grad=True)
targets = torch.full((16,), -100, device="cuda")
print("expected", torch.nn.functional.cross_entropy(e @ c.T, targets, reduction="sum"))
try:
    loss = linear_cross_entropy(e, c, targets, reduction="sum", impl="cce")
    loss.backward()
except Exception as error:
    print("actual", repr(error)[:80])
    raise SystemExit(1) from None
print("actual", loss)
raise SystemExit(bool(loss != 0 or e.grad.any()))
