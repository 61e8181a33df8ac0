"""Sums are kept in the format of the data: ones beyond 2048 in float16 are lost.

package: conch-triton-kernels
operator: conch.ops.vision.bev_pool.bev_pool
input: 4,096 points of one channel, all 1, float16, in one cell
expected: 4096
actual: 2048
line: conch/kernels/vision/bev_pool.py: tl.zeros(..., image_feats_ptr.dtype.element_ty)
since: 1.1
last: 1.3
state: new
finite: yes
device: any
"""

import torch
from conch.ops.vision.bev_pool import bev_pool

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.ones(4096, 1, dtype=torch.float16, device=device)
cells = torch.zeros(4096, 4, dtype=torch.int32, device=device)
start = torch.tensor([0], dtype=torch.int32, device=device)
actual = bev_pool(x, cells, start, start + 4096, 1, 1, 1, 1).item()
print("expected", x.float().sum().item())
print("actual", actual)
raise SystemExit(abs(actual - 4096) > 10)
