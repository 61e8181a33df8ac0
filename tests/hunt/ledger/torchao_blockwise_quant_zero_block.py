"""torchao's blockwise float8 quantization divides a block of zeros by their maximum.

package: torchao
operator: torchao.kernel.blockwise_quantization.fp8_blockwise_act_quant
input: x = zeros of 1 x 128, float32: a token of padding, which BlockwiseQuantLinear
  passes on
expected: zeros
actual: nan (fp8_blockwise_weight_quant likewise)
line: torchao/kernel/blockwise_quantization.py:163: y = x / s, where s is
  max / 448 = 0; a scale of at least 1e-12 mends it, as it did a copy of this kernel
  (huggingface/kernels-community#680); _choose_scale_float8 has the same, which is
  reported (pytorch/ao#4713)
since: 0.15.0
last: 0.18.0
state: new
finite: yes
device: cuda
"""

import torch
from torch.utils._triton import has_triton

if not has_triton():
    raise SystemExit(77)
from torchao.kernel.blockwise_quantization import fp8_blockwise_act_quant

x = torch.zeros(1, 128, device="cuda")
y, scale = fp8_blockwise_act_quant(x)
actual = y.float() * scale

print("expected", x[0, :4].tolist())
print("actual", actual[0, :4].tolist(), "of", y[0, :4].float().tolist())
raise SystemExit(0 if torch.equal(y.float(), x) else 1)
