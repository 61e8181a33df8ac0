"""torchao's scaled_int8_mm refuses a matrix of one row.

package: torchao
operator: torchao.prototype.quantized_training.int8_mm.scaled_int8_mm
input: A = ones of 1 x 32, B = ones of 32 x 16, int8; row_scale of 1, col_scale of 16
expected: 32 everywhere, as (A @ B) * row_scale * col_scale
actual: AssertionError: row_scale.squeeze() has no dimension left
line: torchao/prototype/quantized_training/int8_mm.py:152: row_scale.squeeze().shape ==
  (A.shape[0],) is () == (1,) for one row; reshape(-1) mends it
since: 0.6.1
last: 0.18.0
state: new
finite: yes
device: any
"""

import torch
from torchao.prototype.quantized_training.int8_mm import scaled_int8_mm

device = "cuda" if torch.cuda.is_available() else "cpu"
a = torch.ones(1, 32, dtype=torch.int8, device=device)
b = torch.ones(32, 16, dtype=torch.int8, device=device)
scales = torch.ones(1, device=device), torch.ones(16, device=device)

print("expected", (a.double() @ b.double())[0, :4].tolist())
try:
    actual = scaled_int8_mm(a, b, *scales)
except AssertionError as error:
    print("actual", repr(error))
    raise SystemExit(1) from None
except NotImplementedError:  # accepted, but there is no kernel for a processor
    raise SystemExit(0) from None
print("actual", actual[0, :4].tolist())
raise SystemExit(0)
