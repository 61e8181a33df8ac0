"""sglang's token bitmask masks the wrong row where logits are a slice of wider rows.

package: sglang
operator: sglang.kernels.ops.grammar.bitmask_ops.apply_token_bitmask_inplace_triton
input: logits = zeros of 2 x 64, of which the first 32 columns; a bitmask that admits
  all tokens in row 0 and none in row 1
expected: row 1 is -inf
actual: row 1 is 0, and the padding of row 0 is -inf
line: sglang/kernels/ops/grammar/bitmask_ops.py:135: logits_strides is logits_shape[1];
  logits.stride(0) mends it
since: 0.5.16
last: 0.5.23
state: known upstream, mlc-ai/xgrammar#359 (mended there, from where it was copied)
finite: yes
device: any
"""

import importlib.util
import os
import sys
import types

import torch

utils = sys.modules["sglang.srt.utils"] = types.ModuleType("sglang.srt.utils")
utils.get_device_core_count = lambda *_: 4  # without the server
folder = importlib.util.find_spec("sglang").submodule_search_locations[0]
path = os.path.join(folder, "kernels/ops/grammar/bitmask_ops.py")
spec = importlib.util.spec_from_file_location("bitmask_ops", path)
spec.loader.exec_module(ops := importlib.util.module_from_spec(spec))

device = "cuda" if torch.cuda.is_available() else "cpu"
logits = torch.zeros(2, 64, device=device)[:, :32]
bitmask = torch.tensor([[-1], [0]], dtype=torch.int32, device=device)
ops.apply_token_bitmask_inplace_triton(logits, bitmask)
print("expected", [0.0, float("-inf")])
print("actual", logits[:, 0].tolist())
raise SystemExit(0 if logits[1].isinf().all() else 1)
