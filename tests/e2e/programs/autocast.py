"""Autocast."""

import k
import torch

m = torch.nn.Linear(8, 8).cuda()
with torch.autocast("cuda", dtype=torch.bfloat16):
    y = m(torch.ones(2, 8, device="cuda"))
assert y.dtype == torch.bfloat16, y.dtype
k.add(y, y)
