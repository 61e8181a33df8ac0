"""selective_state_update raises when its optional D or dt_bias is left out.

package: mamba-ssm
needs: einops==0.8.1
operator: mamba_ssm.ops.triton.selective_state_update.selective_state_update
input: a state of 1 x 16 x 16; x, dt, B, C of 1 x 16, A of 16 x 16; no D, no dt_bias
expected: an output of 1 x 16, as of the package's selective_state_update_ref
actual: TypeError: Value after * must be an iterable, not int
line: mamba_ssm/ops/triton/selective_state_update.py:211: *(...) if D is not None else 0
  unpacks 0; 207 for dt_bias; (0, 0) mends it
since: 1.2.1
last: 2.3.2.post1
state: new
finite: yes
device: cuda
"""

import sys
import types
from importlib.machinery import PathFinder

import torch

if not torch.cuda.is_available():
    raise SystemExit(77)
whole = types.ModuleType("mamba_ssm")  # its __init__ asks for compiled extensions
whole.__path__ = PathFinder.find_spec("mamba_ssm").submodule_search_locations
sys.modules["mamba_ssm"] = whole
from mamba_ssm.ops.triton import selective_state_update as module  # noqa: E402

x, dt, b, c = (torch.rand(1, 16, device="cuda") for _ in range(4))
state, a = torch.zeros(1, 16, 16, device="cuda"), -torch.rand(16, 16, device="cuda")
print(
    "expected", module.selective_state_update_ref(state.clone(), x, dt, a, b, c)[0, 0]
)
try:
    print("actual", module.selective_state_update(state, x, dt, a, b, c)[0, 0])
except (TypeError, AttributeError) as error:
    print("actual", repr(error))
    raise SystemExit(1) from None
