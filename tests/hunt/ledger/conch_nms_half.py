"""Areas of float16 boxes overflow: two equal boxes of 300 x 300 are both kept.

package: conch-triton-kernels
operator: conch.ops.vision.nms.nms
input: two equal boxes (0, 0, 300, 300), float16, scores 0.9 and 0.8, threshold 0.5
expected: the first box alone, as with float32 and as torchvision, from where it was
  ported, which multiplies in float32
actual: both: 300 * 300 is inf in float16, and inf / inf overlaps nothing
line: conch/kernels/vision/nms.py:90: box1_area is taken in the boxes' format; box2_area
  and inter_area, too; boxes in float32 mend it
since: 1.3
last: 1.3
state: new
finite: yes
device: cuda
"""

import torch
from conch.ops.vision.nms import nms

if not torch.cuda.is_available():
    raise SystemExit(77)
boxes = torch.tensor([[0, 0, 300, 300]] * 2, dtype=torch.float16, device="cuda")
scores = torch.tensor([0.9, 0.8], device="cuda")
expected = nms(boxes.float(), scores, 0.5)
actual = nms(boxes, scores, 0.5)
print("expected", expected.tolist())
print("actual", actual.tolist())
raise SystemExit(actual.tolist() != expected.tolist())
