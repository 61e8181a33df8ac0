"""lmdeploy's multinomial_sampling ignores the indices if there is one candidate.

package: lmdeploy
operator: lmdeploy.pytorch.kernels.cuda.multinomial_sampling.multinomial_sampling
input: scores = [[1.0], [1.0]], indices = [[7], [9]], seeds and offsets of 0
expected: tokens [7, 9], of shape (2,), as with more candidates
actual: zeros of shape (2, 1): token 0 for every sequence
line: lmdeploy/pytorch/kernels/cuda/multinomial_sampling.py:77: returns
  torch.zeros_like(scores) before indices are looked at
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
path = os.path.join(folder, "pytorch/kernels/cuda/multinomial_sampling.py")
spec = importlib.util.spec_from_file_location("sampling", path)  # without the server
sampling = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sampling)

device = "cuda" if torch.cuda.is_available() else "cpu"
scores = torch.ones(2, 1, device=device)
indices = torch.tensor([[7], [9]], device=device)
zeros = torch.zeros(2, dtype=torch.int64, device=device)
actual = sampling.multinomial_sampling(scores, zeros, zeros, indices)

print("expected", [7, 9])
print("actual", actual.tolist())
raise SystemExit(0 if actual.tolist() == [7, 9] else 1)
