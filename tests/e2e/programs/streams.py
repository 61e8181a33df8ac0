"""Streams and events."""

import k
import torch

s = torch.cuda.Stream()
e = torch.cuda.Event(enable_timing=True)
f = torch.cuda.Event(enable_timing=True)
x = torch.ones(70, device="cuda")
with torch.cuda.stream(s):
    e.record(s)
    y = k.add(x, x)
    f.record(s)
torch.cuda.current_stream().wait_stream(s)
s.synchronize()
f.synchronize()
e.elapsed_time(f)
x.record_stream(s)
torch.cuda.synchronize()
assert y.sum().item() == 140
