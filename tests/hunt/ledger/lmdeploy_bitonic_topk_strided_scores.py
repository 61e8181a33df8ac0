"""lmdeploy's bitonic_topk stores into its scratch by the stride of the scores.

package: lmdeploy
operator: lmdeploy.pytorch.kernels.cuda.bitonic_topk.bitonic_topk
input: scores = [0, 1, 2, 3] expanded to 2 rows, float32; k = 4
expected: the indices [3, 2, 1, 0] for both rows
actual: the second row is what fresh memory held
line: lmdeploy/pytorch/kernels/cuda/bitonic_topk.py:172: stores into empty_like(scores)
  by stride_m, the scores' stride, 0 here; scores.contiguous() mends it
since: 0.14.0
last: 0.18.0
state: new
finite: yes
device: any
"""

import importlib.util
import os
import sys
from types import ModuleType

import torch

parts = ["lmdeploy", "pytorch", "kernels", "cuda", "utils"]  # without the server
for count in range(1, 6):
    module = sys.modules[".".join(parts[:count])] = ModuleType(parts[count - 1])
module.get_device_props = lambda _: {"multi_processor_count": 8}
path = next(d for d in sys.path if os.path.isdir(os.path.join(d, "lmdeploy/pytorch")))
path = os.path.join(path, "lmdeploy/pytorch/kernels/cuda/bitonic_topk.py")
spec = importlib.util.spec_from_file_location("bitonic_topk", path)
spec.loader.exec_module(kernels := importlib.util.module_from_spec(spec))

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.use_deterministic_algorithms(True, warn_only=True)  # fills empty memory
scores = torch.arange(4.0, device=device).expand(2, 4)
lengths = torch.ones(2, dtype=torch.int64, device=device)
actual = kernels.bitonic_topk(scores, lengths, lengths * 4, 4).tolist()
print("expected", [[3, 2, 1, 0]] * 2)
print("actual", actual)
raise SystemExit(0 if actual == [[3, 2, 1, 0]] * 2 else 1)
