"""Heads are cached at the key's stride between heads, whatever the cache's is.

package: conch-triton-kernels
operator: conch.ops.vllm.reshape_and_cache.reshape_and_cache
input: one token of 2 heads of 2, into slot 0; caches of 1 block, 4 slots, 2 heads of 2,
  whose heads lie before their slots in memory (a transpose)
expected: the heads 1, 2 and 3, 4 in slot 0 of the cache
actual: the second head lands in slot 1 of the first
line: conch/kernels/vllm/reshape_and_cache.py:102: the store adds head_offset, of the
  key; kv_head_index * kv_cache_head_stride mends it, as 1.2.1 had it, and is never read
  now
since: 1.3
last: 1.3
state: new
finite: yes
device: any
"""

import torch
from conch.ops.vllm.reshape_and_cache import reshape_and_cache

device = "cuda" if torch.cuda.is_available() else "cpu"
key = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]], device=device)
caches = [torch.zeros(1, 2, 4, 2, device=device).transpose(1, 2) for _ in "kv"]
slots = torch.zeros(1, dtype=torch.int64, device=device)
reshape_and_cache(key, key, *caches, slots)
print("expected", key[0].tolist())
print("actual", caches[0][0, 0].tolist())
raise SystemExit(bool((caches[0][0, 0] != key[0]).any()))
