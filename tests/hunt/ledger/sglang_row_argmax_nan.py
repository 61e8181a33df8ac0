"""sglang's row_argmax skips NaN up to 64 rows, and from 65 rows on as torch does not.

package: sglang
operator: sglang.kernels.ops.speculative.row_argmax.row_argmax
input: x = [[1, nan, 3]], float32
expected: [1], as x.argmax(-1), which its documentation names, and as for 65 such rows
actual: [2]
line: sglang/kernels/ops/speculative/row_argmax.py:29: tl.max drops NaN, v == cur_v too;
  _argmax_pair, for more rows, keeps it
since: 0.5.21
last: 0.5.23
state: new
finite: no
device: any
"""

import importlib.util
import os

import torch

folder = importlib.util.find_spec("sglang").submodule_search_locations[0]
path = os.path.join(folder, "kernels/ops/speculative/row_argmax.py")
spec = importlib.util.spec_from_file_location("row_argmax", path)  # without the server
spec.loader.exec_module(kernels := importlib.util.module_from_spec(spec))

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.tensor([[1.0, float("nan"), 3.0]], device=device)
expected, actual = x.argmax(-1).tolist(), kernels.row_argmax(x).tolist()

print("expected", expected)
print("actual", actual)
raise SystemExit(0 if actual == expected else 1)
