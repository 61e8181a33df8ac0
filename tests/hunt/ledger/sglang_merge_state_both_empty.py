"""sglang's merge_state of two states that saw no key is NaN.

package: sglang
operator: sglang.kernels.ops.attention.merge_state.merge_state_triton
input: two outputs of zeros, 1 x 1 x 4, float32, whose log-sum-exps are -inf: a query
  that sees no key of either chunk of a prefill (vllm-project/vllm#27491, a user's
  report)
expected: zeros, with a log-sum-exp of -inf
actual: nan for both
line: sglang/kernels/ops/attention/merge_state.py:31: p_lse - max_lse is -inf - -inf;
  with 0 for a maximum of -inf p_scale is 0 / 0 and wants 0, too
since: 0.5.16
last: 0.5.23
state: known upstream, vllm-project/vllm#39148 (of the same kernel there)
finite: no
device: any
"""

import importlib.util
import os

import torch

folder = importlib.util.find_spec("sglang").submodule_search_locations[0]
path = os.path.join(folder, "kernels/ops/attention/merge_state.py")
spec = importlib.util.spec_from_file_location("merge_state", path)  # without the server
spec.loader.exec_module(kernels := importlib.util.module_from_spec(spec))

device = "cuda" if torch.cuda.is_available() else "cpu"
output = torch.zeros(1, 1, 4, device=device)
lse = torch.full((1, 1), float("-inf"), device=device)
actual = kernels.merge_state_triton(output, lse, output.clone(), lse.clone())

print("expected", output.tolist(), lse.tolist())
print("actual", *(each.tolist() for each in actual))
raise SystemExit(1 if actual[0].isnan().any() or actual[1].isnan().any() else 0)
