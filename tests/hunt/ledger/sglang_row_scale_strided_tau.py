"""sglang's apply_log_scaling_tau reads the scales of rows at unit stride.

package: sglang
operator: sglang.kernels.ops.elementwise.row_scale.apply_log_scaling_tau
input: x = ones of 2 x 4, float32; tau = the first column of [[2, 5], [3, 7]]
expected: rows of 2 and 3, as x * tau
actual: rows of 2 and 5
line: sglang/kernels/ops/elementwise/row_scale.py:106: tau.reshape(rows) is a view of
  stride 2, and the kernel loads tau_ptr + row
since: 0.5.23
last: 0.5.23
state: new
finite: yes
device: any
"""

import importlib.util
import os
import sys
from types import ModuleType
from unittest.mock import MagicMock

import torch

for name in ("sglang", "sglang.kernels", "sglang.kernels.jit"):  # without the server
    sys.modules.setdefault(name, ModuleType(name))
sys.modules["sglang.kernels.jit.utils"] = MagicMock()
folder = next(d for d in sys.path if os.path.isdir(os.path.join(d, "sglang/srt")))
path = os.path.join(folder, "sglang/kernels/ops/elementwise/row_scale.py")
spec = importlib.util.spec_from_file_location("row_scale", path)
spec.loader.exec_module(kernels := importlib.util.module_from_spec(spec))

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.ones(2, 4, device=device)
tau = torch.tensor([[2.0, 5.0], [3.0, 7.0]], device=device)[:, :1]
expected, actual = x * tau, kernels.apply_log_scaling_tau(x, tau)
print("expected", expected.tolist())
print("actual", actual.tolist())
raise SystemExit(0 if torch.equal(actual, expected) else 1)
