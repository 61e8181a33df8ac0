"""sglang's MoE router is NaN for a logit above 44 times the softcap.

package: sglang
operator: sglang.kernels.ops.moe.router.fused_moe_router_cudacore
input: x = ones of 1 x 512, weights of 4 experts of which one gives 1,536, the others 5;
  moe_softcapping = 30
expected: expert 3 with weight 1, as 30 * tanh(logits / 30) is 30 there
actual: nan, or another expert
line: sglang/kernels/ops/moe/router.py:51: (exp(2x) - 1) / (exp(2x) + 1) is inf / inf
since: 0.5.22
last: 0.5.23
state: new
finite: yes
device: any
"""

import os
import sys
from types import ModuleType

import torch

folder = next(d for d in sys.path if os.path.isdir(os.path.join(d, "sglang/srt")))
for name in (".kernels", ".kernels.ops", ".kernels.ops.moe", ".srt", "", ".srt.utils"):
    module = sys.modules["sglang" + name] = ModuleType("sglang" + name)  # no server
    module.__path__ = [os.path.join(folder, "sglang", *name.split("."))]
module.is_hip = lambda: False
from sglang.kernels.ops.moe.router import fused_moe_router_cudacore  # noqa: E402

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.ones(1, 512, device=device)
weights = torch.full((4, 512), 0.01, device=device)
weights[3] = 3.0
logits = 30 * torch.tanh(x.double() @ weights.double().T / 30)
expected = torch.softmax(logits, -1).topk(2)
actual, experts = fused_moe_router_cudacore(x, weights, 2, 30.0)
print("expected", expected.values.tolist(), expected.indices.tolist())
print("actual", actual.tolist(), experts.tolist())
right = torch.allclose(actual.double(), expected.values, atol=1e-4)
raise SystemExit(0 if right else 1)
