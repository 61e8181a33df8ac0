"""Products with wider sums."""

import k
import torch

a = torch.ones(2, 3, device="cuda", dtype=torch.bfloat16)
b = a.t()
assert torch.mm(a, b, out_dtype=torch.float32).dtype == torch.float32
o = torch.empty(2, 2, device="cuda")
torch.addmm(o.fill_(1), a, b, out_dtype=torch.float32, out=o)
assert o[0, 0] == 4
assert a.dtype == torch.bfloat16
k.add(o, o)
