"""Questions about memory."""

import k
import torch

free, total = torch.cuda.mem_get_info()
torch.cuda.reset_peak_memory_stats()
x = torch.ones(70, device="cuda")
k.add(x, x)
torch.cuda.max_memory_allocated()
torch.cuda.memory_summary()
torch.cuda.empty_cache()
assert torch.cuda.get_device_properties(0).multi_processor_count == 16
