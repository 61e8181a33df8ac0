"""Batches beyond 2^31 elements are rotated at a wrapped address.

package: flash-attn
needs: einops==0.8.1
operator: flash_attn.ops.triton.rotary.apply_rotary
input: 33 x 16384 x 64 x 64, bfloat16 (4.4 GB), all ones; cos 1, sin 0: 33 sequences of
  16,384 tokens, of 64 heads of 64
expected: ones, everywhere
actual: an illegal access, or a last batch that is not written
line: flash_attn/ops/triton/rotary.py:51: X + pid_batch * stride_x_batch, in 32 bits;
  cross_entropy.py:46 of the same folder makes its stride 64 bits wide
since: 2.2.0
last: 2.8.3.post2
state: new
finite: yes
device: cuda
"""

import sys
import types
from importlib.machinery import PathFinder

import torch

if not torch.cuda.is_available() or torch.cuda.mem_get_info()[0] < 20e9:
    raise SystemExit(77)
whole = types.ModuleType("flash_attn")  # its __init__ asks for compiled extensions
whole.__path__ = PathFinder.find_spec("flash_attn").submodule_search_locations
sys.modules["flash_attn"] = whole
from flash_attn.ops.triton.rotary import apply_rotary  # noqa: E402

x = torch.ones(33, 16384, 64, 64, dtype=torch.bfloat16, device="cuda")
cos = torch.ones(16384, 32, dtype=torch.bfloat16, device="cuda")
print("expected", 1.0)
try:
    print("actual", last := apply_rotary(x, cos, cos * 0)[-1].float().mean().item())
except RuntimeError as error:
    print("actual", str(error).splitlines()[0])
    raise SystemExit(1) from None
raise SystemExit(abs(last - 1) > 0.01)
