"""sglang's batch-invariant mean gives the sum where no dimension is named.

package: sglang
operator: sglang.srt.batch_invariant_ops.batch_invariant_ops.mean_batch_invariant
input: x = [1, 2, 3], float32, dim = [], as torch.mean(x) calls aten::mean.dim
expected: 2, the mean of every dimension
actual: 6
line: sglang/srt/batch_invariant_ops/batch_invariant_ops.py:632: n_elems multiplies the
  sizes of no dimension; all of them where dim is empty mends it; with several it is
  float32 whatever the dtype
since: 0.5.3
last: 0.5.23
state: known upstream, thinking-machines-lab/batch_invariant_ops#7 (its source, mended)
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

x = torch.tensor([1.0, 2.0, 3.0])
actual = ops.mean_batch_invariant(x, []).item()
print("expected", x.mean().item())
print("actual", actual)
raise SystemExit(0 if actual == 2.0 else 1)
