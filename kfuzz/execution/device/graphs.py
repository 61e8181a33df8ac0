"""CUDA graphs: a call captured on some data and replayed on others.

A capture that fails can leave torch's allocator and generators unusable, so what waits
for the device is found out by a call outside a capture, where it does no harm.
"""

import gc
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.execution.calls.batches import Overlapping, PlacedCall
from kfuzz.execution.calls.compiling import by_kernel
from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.device.backends import is_lost
from kfuzz.execution.interpreter.watch import watch
from kfuzz.execution.memory.slots import Arena
from kfuzz.execution.values.fills import SEED, seeded
from kfuzz.numerics.run import Run

WARM_UPS: Final = 2
"""Calls before the capture: the first one compiles and fills the kernel's caches, the
second one shows whether a call waits for the device."""

MOST_BYTES: Final = 1 << 26
"""Bytes of arguments up to which a call is captured: a graph has memory of its own,
which is given back to the driver each time."""

_EMPTY: Final = "CUDA Graph is empty"
_WAITS: Final = "synchronizing CUDA operation"

# A stream for each device: libraries keep a workspace for every stream they meet.
_streams: dict[torch.device, torch.cuda.Stream] = {}
# The allocator may still ask a graph whose capture failed.
_failed: list[torch.cuda.CUDAGraph] = []


def replayed(
    common: Overlapping,
    captured: Mapping[str, Tensor],
    data: Sequence[Mapping[str, Tensor]],
) -> tuple[tuple[Run, ...], bool]:
    """Capture one call of a kernel in a CUDA graph and replay it on other data.

    The data are written where the captured call's arguments lie, destinations
    poisoned anew. What fails, capture or replay, is no evidence against a kernel.

    Args:
        common: the kernel and the form of its arguments, on a GPU.
        captured: logical elements of the arguments during the capture.
        data: those of each replay, in order.

    Returns:
        A run for each data, none where the call cannot be captured; and whether the
        process should capture no more, or do anything on the device: a capture ended
        in an error, or the device is lost.
    """
    device = common.device
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    graph = torch.cuda.CUDAGraph()
    runs: tuple[Run, ...] = ()
    try:
        placed = PlacedCall(common, captured, Arena(device))
        torch.cuda.synchronize(device)
        with (
            torch.cuda.device(device),
            seeded(device, SEED),
            torch.no_grad(),
            watch(config=common.asked.config),
            torch.cuda.stream(_streams[device]),
            by_kernel(),
        ):
            runs = _replayed(placed, captured, data, graph)
    except Exception:  # a capture that broke may show in the generators' states
        runs = ()
    if is_lost(device) and graph not in _failed:
        _failed.append(graph)
    if graph in _failed:
        return (), True
    graph.reset()
    torch.cuda.empty_cache()  # its pool serves no other graph
    return runs, False


def _replayed(
    placed: PlacedCall,
    captured: Mapping[str, Tensor],
    data: Sequence[Mapping[str, Tensor]],
    graph: torch.cuda.CUDAGraph,
) -> tuple[Run, ...]:
    """Warm up, capture and replay, on the current stream."""
    device = placed.common.device
    for _ in range(WARM_UPS):
        placed.write(captured, poison=True)
        with listening() as heard:
            placed.call()
    if heard:
        return ()
    placed.write(captured, poison=True)
    torch.cuda.synchronize(device)
    returned, empty = _captured(placed.call, graph)
    if empty:
        return ()
    runs = []
    for values in data:
        placed.write(values, poison=True)
        graph.replay()
        torch.cuda.synchronize(device)
        runs.append(placed.read(returned))
    return tuple(runs)


def _captured(
    call: Callable[[], object], graph: torch.cuda.CUDAGraph
) -> tuple[object, bool]:
    """Capture a call; return what it returned, and whether the graph is empty.

    `torch.cuda.graph` leaves its stream current if ending the capture fails; here the
    caller's block ends that, whatever happens. The graph stays in `_failed` if it does.

    Raises:
        Exception: if the call or its capture fails.
    """
    collecting = gc.isenabled()
    gc.disable()  # what a collection frees would be freed within the capture
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            _failed.append(graph)
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                returned = call()
            except SystemExit as error:
                raise RuntimeError("it ends in a capture") from error
            finally:
                graph.capture_end()
                _failed.remove(graph)
    finally:
        if collecting:
            gc.enable()
    return returned, any(_EMPTY in str(w.message) for w in told)


@contextmanager
def listening() -> Iterator[list[str]]:
    """Yield a list that holds, after the block, what waited for the device in it.

    Seen are torch's operators and its Python functions that wait; not what libraries
    do.
    """
    heard: list[str] = []
    patches = Patches()

    def noting(wait: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            heard.append("a call of Python's waits for the device")
            return wait(*args, **kwargs)

        return noted

    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            for owner in (torch.cuda, torch.cuda.Stream, torch.cuda.Event):
                patches.set(owner, "synchronize", noting(owner.synchronize))
            torch.cuda.set_sync_debug_mode("warn")
            yield heard
        finally:
            torch.cuda.set_sync_debug_mode(before)
            patches.undo()
            if any(_WAITS in str(w.message) for w in told):
                heard.append("an operator of torch's waits for the device")
