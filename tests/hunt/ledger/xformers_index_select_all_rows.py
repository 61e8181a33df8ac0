"""Selecting as many rows as there are is rejected, though only more are excluded.

package: xformers
operator: xformers.ops.indexing.index_select_cat
input: a matrix of 2 rows; rows 1 and 0
expected: the rows in the other order
actual: ValueError: The number of indices cannot exceed the number of rows
line: xformers/ops/_triton/k_index_select_cat.py:54: num_indices < num_rows, for <=, as
  its own message has it
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
matrix = torch.arange(4.0, device="cuda").view(2, 2)
rows = torch.tensor([1, 0], device="cuda")
print("expected", matrix[rows].flatten().tolist())
try:
    print("actual", index_select_cat([matrix], [rows]).tolist())
except ValueError as error:
    print("actual", error)
    raise SystemExit(1) from None
