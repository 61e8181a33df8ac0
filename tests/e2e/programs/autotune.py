"""An autotuner."""

import k
import torch

x = torch.ones(70, device="cuda")
assert k.tuned(x).sum().item() == 140
