"""Scaled gradients."""

import k
import torch

m = torch.nn.Linear(8, 8).cuda()
o = torch.optim.SGD(m.parameters(), lr=0.1)
s = torch.amp.GradScaler("cuda")
loss = (
    k.add(
        m(torch.ones(2, 8, device="cuda")).detach(), torch.zeros(2, 8, device="cuda")
    ).sum()
    + m.weight.sum()
)
s.scale(loss).backward()
s.step(o)
s.update()
