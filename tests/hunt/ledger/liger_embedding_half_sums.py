"""LigerEmbedding adds gradients up in the weight's format: float16 stops at 2,048.

package: liger-kernel
operator: liger_kernel.ops.experimental.embedding.LigerEmbeddingFunction
input: weight = zeros of 2 x 4, float16; indices = 8,192 zeros; gradient of ones
expected: 8,192 for row 0, as torch.nn.functional.embedding on a GPU
actual: 2,048, where adding 1 changes nothing; 256 in bfloat16
line: liger_kernel/ops/experimental/embedding.py:69: tl.atomic_add to
  zeros_like(embedding_table), of the weight's format; zeros of float32, cast after,
  mend it
since: 0.3.0
last: 0.8.5
state: new
finite: yes
device: any
"""

import torch
from liger_kernel.ops.experimental.embedding import LigerEmbeddingFunction

device = "cuda" if torch.cuda.is_available() else "cpu"
weight = torch.zeros(2, 4, dtype=torch.float16, device=device, requires_grad=True)
indices = torch.zeros(8192, dtype=torch.int64, device=device)

expected = [8192.0] * 4
LigerEmbeddingFunction.apply(weight, indices).sum().backward()
actual = weight.grad[0].tolist()

print("expected", expected)
print("actual", actual)
raise SystemExit(0 if actual == expected else 1)
