"""Generators of random numbers."""

import k
import torch

g = torch.Generator(device="cuda").manual_seed(3)
x = torch.randn(9, device="cuda", generator=g)
torch.cuda.manual_seed_all(1)
s = torch.cuda.get_rng_state()
torch.cuda.set_rng_state(s)
k.add(x, x)
