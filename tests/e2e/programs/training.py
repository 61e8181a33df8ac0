"""Steps of an optimizer."""

import k
import torch

m = torch.nn.Sequential(
    torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1)
).to("cuda")
o = torch.optim.AdamW(m.parameters(), fused=True)
for _ in range(2):
    x = k.add(torch.ones(4, 8, device="cuda"), torch.ones(4, 8, device="cuda"))
    o.zero_grad()
    m(x).square().mean().backward()
    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    o.step()
