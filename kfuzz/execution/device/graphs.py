"""CUDA graphs: a call captured on some data and replayed on others.

A capture that fails can leave torch's allocator and generators unusable, so what waits
for the device is found out by a call outside a capture, where it does no harm.
"""

import gc
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.execution.calls.compiling import by_kernel
from kfuzz.execution.calls.overlap import Overlapping, PlacedCall
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


@dataclass(frozen=True)
class Replays:
    """What replaying a captured call left.

    Attributes:
        runs: one for each data; empty where the call cannot be captured.
        why: why it cannot, or "".
        broken: whether the process should capture no more, or do anything on the
            device: a capture ended in an error, or the device is lost.
    """

    runs: tuple[Run, ...] = ()
    why: str = ""
    broken: bool = False


def replayed(
    common: Overlapping,
    captured: Mapping[str, Tensor],
    data: Sequence[Mapping[str, Tensor]],
) -> Replays:
    """Capture one call of a kernel in a CUDA graph and replay it on other data.

    The data are written where the captured call's arguments lie, destinations
    poisoned anew. What fails, capture or replay, is no evidence against a kernel.

    Args:
        common: the kernel and the form of its arguments, on a GPU.
        captured: logical elements of the arguments during the capture.
        data: those of each replay, in order.
    """
    device = common.device
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    graph = torch.cuda.CUDAGraph()
    made = Replays()
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
            made = _replayed(placed, captured, data, graph)
    except Exception as error:
        # A capture that broke may show again in the generators' states.
        made = Replays(why=made.why or _told(error), broken=made.broken)
    if is_lost(device):
        made = Replays(why=made.why or "the device is lost", broken=True)
    if made.broken:
        _failed.append(graph)
    else:
        graph.reset()
        torch.cuda.empty_cache()  # its pool serves no other graph
    return made


def _replayed(
    placed: PlacedCall,
    captured: Mapping[str, Tensor],
    data: Sequence[Mapping[str, Tensor]],
    graph: torch.cuda.CUDAGraph,
) -> Replays:
    """Warm up, capture and replay, on the current stream."""
    device = placed.common.device
    for _ in range(WARM_UPS):
        placed.write(captured, poison=True)
        with listening() as heard:
            placed.call()
    if heard:
        return Replays(why=heard[0])
    placed.write(captured, poison=True)
    torch.cuda.synchronize(device)
    try:
        returned, empty = _captured(placed.call, graph)
    except _CaptureFailed as failed:
        return Replays(why=failed.why, broken=failed.broken)
    if empty:
        return Replays(why="it runs nothing on the stream that is captured")
    runs = []
    for values in data:
        placed.write(values, poison=True)
        graph.replay()
        torch.cuda.synchronize(device)
        runs.append(placed.read(returned))
    return Replays(tuple(runs))


class _CaptureFailed(Exception):
    """A capture that came to nothing.

    Attributes:
        why: what was raised, in a line.
        broken: whether ending the capture failed too, so that torch kept parts of it.
    """

    def __init__(self, why: str, *, broken: bool) -> None:
        super().__init__(why)
        self.why, self.broken = why, broken


def _captured(
    call: Callable[[], object], graph: torch.cuda.CUDAGraph
) -> tuple[object, bool]:
    """Capture a call; return what it returned, and whether the graph is empty.

    `torch.cuda.graph` leaves its stream current if ending the capture fails; here the
    caller's block ends that, whatever happens.

    Raises:
        _CaptureFailed: if the call or its capture fails.
    """
    raised: BaseException | None = None
    returned: object = None
    collecting = gc.isenabled()
    gc.disable()  # what a collection frees would be freed within the capture
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                graph.capture_begin(capture_error_mode="thread_local")
            except Exception as error:
                raise _CaptureFailed(_told(error), broken=True) from error
            try:
                returned = call()
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                raised = error
            finally:
                try:
                    graph.capture_end()
                except Exception as error:
                    why = _told(raised or error)
                    raise _CaptureFailed(why, broken=True) from error
    finally:
        if collecting:
            gc.enable()
    if raised is not None:
        raise _CaptureFailed(_told(raised), broken=False)
    return returned, any(_EMPTY in str(w.message) for w in told)


@contextmanager
def listening() -> Iterator[list[str]]:
    """Yield a list that holds, after the block, what waited for the device in it.

    Seen are torch's operators and its Python functions that wait; not what libraries
    do.
    """
    heard: list[str] = []
    patches = Patches()

    def noting(name: str, wait: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            heard.append(f"it calls {name}")
            return wait(*args, **kwargs)

        return noted

    waits = (
        (torch.cuda, "synchronize", "torch.cuda.synchronize"),
        (torch.cuda.Stream, "synchronize", "Stream.synchronize"),
        (torch.cuda.Event, "synchronize", "Event.synchronize"),
    )
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            for owner, attribute, name in waits:
                patches.set(owner, attribute, noting(name, getattr(owner, attribute)))
            torch.cuda.set_sync_debug_mode("warn")
            yield heard
        finally:
            torch.cuda.set_sync_debug_mode(before)
            patches.undo()
            if any(_WAITS in str(w.message) for w in told):
                heard.append("an operator of torch's waits for the device")


def _told(error: BaseException) -> str:
    """Return an exception in a line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
