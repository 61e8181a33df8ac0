"""lmdeploy's apply_rotary_pos_emb leaves what is beyond the rotary part unwritten.

package: lmdeploy
operator: lmdeploy.pytorch.kernels.cuda.apply_rotary_pos_emb.apply_rotary_pos_emb
input: q = k = ones of 64 x 1 x 64, float32; cos = 1, sin = 0 of 64 x 32: half a head
expected: q, whose second half passes through
actual: whatever torch.empty_like(q) held in the second half
line: lmdeploy/pytorch/kernels/cuda/apply_rotary_pos_emb.py:160: q_embed is empty, and
  only half_size * 2 features of it are stored; q.clone() mends it; in place they pass
  through
since: 0.10.2
last: 0.18.0
state: new
finite: yes
device: any
"""

import importlib.util
import os

import torch

folder = importlib.util.find_spec("lmdeploy").submodule_search_locations[0]
path = os.path.join(folder, "pytorch/kernels/cuda/apply_rotary_pos_emb.py")
spec = importlib.util.spec_from_file_location("rotary", path)  # without the server
rotary = importlib.util.module_from_spec(spec)
spec.loader.exec_module(rotary)

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.use_deterministic_algorithms(True, warn_only=True)  # fills empty memory with NaN
q = torch.ones(64, 1, 64, device=device)
cos, sin = torch.ones(64, 32, device=device), torch.zeros(64, 32, device=device)
actual, _ = rotary.apply_rotary_pos_emb(q, q.clone(), cos, sin)

print("expected", q[0, 0, 30:34].tolist())
print("actual", actual[0, 0, 30:34].tolist())
raise SystemExit(0 if torch.equal(actual, q) else 1)
