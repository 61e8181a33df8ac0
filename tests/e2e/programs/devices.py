"""Devices and default devices."""

import k
import torch

assert torch.cuda.device_count() == 1
with torch.cuda.device(0):
    x = torch.randn(100, device=torch.device("cuda", 0))
y = torch.ones(100).cuda()
z = torch.ones(100).to("cuda:0", non_blocking=True)
torch.testing.assert_close(k.add(x, y).cpu(), (x + z).cpu())
torch.set_default_device("cuda")
assert torch.zeros(3).is_cuda
