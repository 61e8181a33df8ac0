"""sglang's batch-invariant mean adds 1,024 values up in float16.

package: sglang
operator: sglang.srt.batch_invariant_ops.batch_invariant_ops.mean_kernel, of mean_dim
input: x of 1 x 1024 x 1, float16, of 100; the mean over the 1024
expected: 100, as torch.mean, which adds in float32
actual: inf, as the sum is 102,400
line: sglang/srt/batch_invariant_ops/batch_invariant_ops.py:500: tl.sum(vals) adds up to
  1,024 values in the format of x; vals.to(tl.float32) mends it
since: 0.5.3
last: 0.5.23
state: new
finite: yes
device: any
"""

import os
import sys
from types import ModuleType
from unittest.mock import MagicMock

import torch

folder = next(d for d in sys.path if os.path.isdir(os.path.join(d, "sglang/srt")))
for name in ("sglang", "sglang.srt", "sglang.srt.batch_invariant_ops"):
    module = sys.modules[name] = ModuleType(name)  # without the server
    module.__path__ = [os.path.join(folder, *name.split("."))]
for name in ("layers", "layers.deep_gemm_wrapper", "utils", "utils.common"):
    sys.modules["sglang.srt." + name] = MagicMock()
configurer = MagicMock(ENABLE_JIT_DEEPGEMM=False)
sys.modules["sglang.srt.layers.deep_gemm_wrapper.configurer"] = configurer
sys.modules["sglang.srt.utils"].is_npu = lambda: False
from sglang.srt.batch_invariant_ops import batch_invariant_ops as ops  # noqa: E402

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.full((1, 1024, 1), 100.0, dtype=torch.float16, device=device)
mean = x.new_zeros(1, 1)  # as mean_dim, which asks for a GPU, launches it
ops.mean_kernel[(1,)](x, mean, *x.stride(), *mean.stride(), 1, 1024, 1, 1024)
print("expected", x.float().mean().item(), "actual", mean.item())
raise SystemExit(0 if mean.item() == 100 else 1)
