"""Types of tensors by their old names."""

import k
import torch

x = torch.zeros(3, dtype=torch.half, device="cuda").type(torch.cuda.FloatTensor)
assert x.is_cuda
y = torch.cuda.FloatTensor(3).fill_(1)
k.add(x, y)
assert torch.empty(2, device="cuda").new_tensor([1.0]).is_cuda
assert torch.tensor([1], device="cuda").is_cuda
