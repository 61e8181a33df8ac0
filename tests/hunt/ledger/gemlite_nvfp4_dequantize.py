"""Dequantizing what quantize_nvfp4 returns multiplies by its scale instead of dividing.

package: gemlite
operator: gemlite.quant_utils.WeightQuantizerMXFP.dequantize
input: a weight of 1 x 16 ones, through quantize_nvfp4 and back
expected: about 1
actual: about 7 million: 2,688 squared, where meta_scales is 448 * 6 / max = 2,688
line: gemlite/quant_utils.py:229: out = out * meta_scales, for out / meta_scales:
  quantize_nvfp4 multiplies its scales by 448 * 6 / max; a comment at
  gemlite/helper.py:480 says that dequantizing divides
since: 0.6.0
last: 0.6.0.post2
state: new
finite: yes
device: cuda
"""

import torch

if not torch.cuda.is_available():
    raise SystemExit(77)
from gemlite.quant_utils import WeightQuantizerMXFP

weight = torch.ones(1, 16, device="cuda")
quantizer = WeightQuantizerMXFP()
codes, scales, meta = quantizer.quantize_nvfp4(weight)
back = quantizer.dequantize(codes, scales, (1, 16), torch.float32, meta)
print("expected", 1.0)
print("actual", back[0, 0].item())
raise SystemExit(abs(back[0, 0].item() - 1) > 0.2)
