"""Labels are read as if they were contiguous: a column of a table gives other losses.

package: flash-attn
needs: einops==0.8.1
operator: flash_attn.ops.triton.cross_entropy.cross_entropy_loss
input: 2 rows of 4 logits, 0 1 2 3; labels 3 and 3, a column of [[3, 0], [3, 0]]
expected: losses 0.44 and 0.44
actual: 0.44 and 3.44: the second label is read as 0
line: flash_attn/ops/triton/cross_entropy.py:66: labels_ptr + row_idx, at unit stride;
  the launcher has to pass labels.contiguous()
since: 2.2.3.post2
last: 2.8.3.post2
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
whole = types.ModuleType("flash_attn")  # its __init__ asks for compiled extensions
whole.__path__ = PathFinder.find_spec("flash_attn").submodule_search_locations
sys.modules["flash_attn"] = whole
from flash_attn.ops.triton.cross_entropy import cross_entropy_loss  # noqa: E402

logits = torch.arange(4.0, device="cuda").repeat(2, 1)
labels = torch.tensor([[3, 0], [3, 0]], device="cuda")[:, 0]
expected = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
actual, _ = cross_entropy_loss(logits, labels)
print("expected", expected.tolist())
print("actual", actual.tolist())
raise SystemExit(bool((actual - expected).abs().max() > 0.01))
