"""sglang's swiglu_oai_split turns a gate of NaN into its limit.

package: sglang
operator: sglang.kernels.ops.activation.minimax_m3_swiglu.swiglu_oai_split
input: gate_up = [[nan, 0]], float32, alpha = 1.702, beta = 1, limit = 7: a product that
  overflowed before, which sglang's SGLANG_ENABLE_NAN_LOGITS_CHECK is for
expected: nan, as torch.clamp keeps it, by which its caller fused_marlin_moe limits
  others
actual: 6.99995
line: sglang/kernels/ops/activation/minimax_m3_swiglu.py:45: tl.minimum(gate, limit);
  propagate_nan=tl.PropagateNan.ALL mends it
since: 0.5.23
last: 0.5.23
state: new
finite: no
device: any
"""

import importlib.util
import os
import sys
from types import ModuleType
from unittest.mock import MagicMock

import torch

package = "sglang.kernels.ops.quantization.mxfp8_epilogue"
for end in (6, 14, 18, 31):  # without the server
    sys.modules[package[:end]] = ModuleType(package[:end])
sys.modules[package] = MagicMock()
folder = next(d for d in sys.path if os.path.isdir(os.path.join(d, "sglang/srt")))
path = os.path.join(folder, "sglang/kernels/ops/activation/minimax_m3_swiglu.py")
spec = importlib.util.spec_from_file_location("swiglu", path)
spec.loader.exec_module(kernels := importlib.util.module_from_spec(spec))

device = "cuda" if torch.cuda.is_available() else "cpu"
gate_up = torch.tensor([[float("nan"), 0.0]], device=device)
actual = kernels.swiglu_oai_split(gate_up, 1.702, 1.0, 7.0)
print("expected", float("nan"), "actual", actual.item())
raise SystemExit(0 if actual.isnan().all() else 1)
