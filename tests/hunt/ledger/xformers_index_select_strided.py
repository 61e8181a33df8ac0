"""The output is written with the source's strides: beyond its end for a slice.

package: xformers
operator: xformers.ops.indexing.index_select_cat
input: the first 2 of 4 columns of a matrix of 4 rows; rows 0 and 1
expected: 0, 1, 4, 5
actual: 0, 1, then what was in memory; 4 and 5 are written behind the output
line: xformers/ops/_triton/k_index_select_cat.py:34: output_ptr + indices * stride0, of
  the source; the output's own stride is to be passed
since: 0.0.23
last: 0.0.35
state: new
finite: yes
device: cuda
"""

import torch
from xformers.ops.indexing import index_select_cat

if not torch.cuda.is_available():
    raise SystemExit(77)
matrix = torch.arange(16.0, device="cuda").view(4, 4)
rows = torch.tensor([0, 1], device="cuda")
expected = matrix[:, :2][rows].flatten()
actual = index_select_cat([matrix[:, :2]], [rows])
print("expected", expected.tolist())
print("actual", actual.tolist())
raise SystemExit(bool((actual != expected).any()))
