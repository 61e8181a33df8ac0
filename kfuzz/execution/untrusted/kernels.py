"""Which kernels a call launches, as Triton and the profiler see it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


def launched(
    call: Callable[[], Any], device: torch.device
) -> tuple[Any, tuple[str, ...]]:
    """Call something under torch's profiler and Triton's hook on launches.

    The profiler can be blind: on an H100 it saw nothing in forked processes.

    Args:
        call: what to call.
        device: where it runs; on the CPU nothing is profiled.

    Returns:
        What it returned, and the names of the kernels that it launched, those of Triton
        first, in the order of the first launch of each.
    """
    if device.type != "cuda":
        return call(), ()
    from torch._C._autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    names: dict[str, None] = {}
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities) as seen, _of_triton(names):
        returned = call()
        torch.cuda.synchronize(device)
    events = seen.events() or ()
    for event in events:
        if event.device_type is DeviceType.CUDA:
            names[str(event.name)] = None
    return returned, tuple(names)


@contextmanager
def _of_triton(names: dict[str, None]) -> Iterator[None]:
    """Note the names of the kernels that Triton launches meanwhile, if it is there."""
    triton: Any = sys.modules.get("triton")
    hooks = getattr(getattr(triton, "knobs", None), "runtime", None)
    chain: Any = getattr(hooks, "launch_enter_hook", None)
    if not hasattr(chain, "add"):
        yield
        return

    def enter(metadata: Any) -> None:
        name = getattr(metadata, "data", {}).get("name")
        if name:
            names[str(name)] = None

    chain.add(enter)
    try:
        yield
    finally:
        chain.remove(enter)
