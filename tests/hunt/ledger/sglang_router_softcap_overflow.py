"""sglang's MoE router is NaN for a logit above 44 times the softcap.

package: sglang
operator: sglang.kernels.ops.moe.router.fused_moe_router_cudacore
input: x = ones of 1 x 512, float32; logits 5, 5, 5 and 1,536; moe_softcapping = 30, as
  Grok1MoE has it; large logits are what a softcap is for
expected: expert 3 with weight 1, by 30 * tanh(logits / 30), as Grok1MoE has it on NPUs
actual: nan, or another expert
line: sglang/kernels/ops/moe/router.py:54: (exp(2x) - 1) / (exp(2x) + 1) is inf / inf; 2
  * sigmoid(2x) - 1 mends it, as vllm-project/vllm#56579 did such a softcap
since: 0.5.16
last: 0.5.23
state: new
finite: yes
device: any
"""

import importlib.util
import os
import sys
from unittest.mock import MagicMock

import torch

for name in ("srt.utils", "srt.layers.moe.topk", "kernels.jit.utils"):
    sys.modules["sglang." + name] = MagicMock(is_hip=lambda: False)  # no server
paths = (os.path.join(d, "sglang/kernels/ops/moe/router.py") for d in sys.path)
path = next(filter(os.path.isfile, paths))
spec = importlib.util.spec_from_file_location("router", path)
spec.loader.exec_module(kernels := importlib.util.module_from_spec(spec))
device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.ones(1, 512, device=device)
weights = torch.full((4, 512), 0.01, device=device)
weights[3] = 3.0
logits = 30 * torch.tanh(x.double() @ weights.double().T / 30)
expected = torch.softmax(logits, -1).topk(2)
actual, experts = kernels.fused_moe_router_cudacore(x, weights, 2, 30.0)
print("expected", *(part.tolist() for part in expected))
print("actual", actual.tolist(), experts.tolist())
raise SystemExit(0 if torch.allclose(actual.double(), expected.values) else 1)
