"""Padded columns of the vocabulary count as logits of -softcap in the log-sum-exp.

package: cut-cross-entropy
operator: cut_cross_entropy.linear_cross_entropy, softcap=2, impl="cce"
input: 16 embeddings of 64 zeros, 3 words, bfloat16, targets 0
expected: log(3) = 1.0986
actual: about 3.0: each of the 125 columns that pad a block of 128 adds exp(-2)
line: cut_cross_entropy/cce_lse_forward.py:78: tl_softcapping makes -softcap of the
  mask's -inf; to mask after it mends it
since: 24.11.3
last: 25.1.1
state: new
finite: yes
device: cuda
"""

import torch
from cut_cross_entropy import linear_cross_entropy

if not torch.cuda.is_available():
    raise SystemExit(77)
e = torch.zeros(16, 64, dtype=torch.bfloat16, device="cuda")
c = torch.ones(3, 64, dtype=torch.bfloat16, device="cuda")
targets = torch.zeros(16, dtype=torch.int64, device="cuda")
logits = 2 * torch.tanh(e.double() @ c.double().T / 2)
expected = torch.nn.functional.cross_entropy(logits, targets).item()
actual = linear_cross_entropy(e, c, targets, softcap=2.0, impl="cce").item()
print("expected", expected)
print("actual", actual)
raise SystemExit(abs(actual - expected) > 0.01)
