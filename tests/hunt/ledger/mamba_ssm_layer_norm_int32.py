"""Rows beyond 2^31 elements are read and written at a wrapped address.

package: mamba-ssm
needs: einops==0.8.1
operator: mamba_ssm.ops.triton.layer_norm.rms_norm_fn
input: 2^19 + 1 rows of 4,096, bfloat16 (4.3 GB), all ones: tokens of a long context
expected: ones in every row
actual: an illegal access, or a last row that is not written
line: mamba_ssm/ops/triton/layer_norm.py:221: X += row * stride_x_row, in 32 bits; row
  in 64 bits mends it
since: 2.0.0
last: 2.3.2.post1
state: known upstream, state-spaces/mamba#1015
finite: yes
device: cuda
"""

import sys
import types
from importlib.machinery import PathFinder

import torch

if not torch.cuda.is_available() or torch.cuda.mem_get_info()[0] < 20e9:
    raise SystemExit(77)
whole = types.ModuleType("mamba_ssm")  # its __init__ asks for compiled extensions
whole.__path__ = PathFinder.find_spec("mamba_ssm").submodule_search_locations
sys.modules["mamba_ssm"] = whole
from mamba_ssm.ops.triton.layer_norm import rms_norm_fn  # noqa: E402

x = torch.ones(2**19 + 1, 4096, dtype=torch.bfloat16, device="cuda")
print("expected", 1.0)
try:
    print(
        "actual", last := rms_norm_fn(x, x[0].clone(), None)[-1].float().mean().item()
    )
except RuntimeError as error:
    print("actual", str(error).splitlines()[0])
    raise SystemExit(1) from None
raise SystemExit(abs(last - 1) > 0.01)
