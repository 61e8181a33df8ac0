"""Calls that the device gate looks at: before, after, and what it told of them."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from kfuzz.monitor.gate.device import DeviceGate, Held, Told
from kfuzz.monitor.gate.host import Reason
from kfuzz.monitor.records import Record
from kfuzz.monitor.runtime import runtime
from kfuzz.monitor.seen import Call, Seen, Settled
from kfuzz.monitor.snapshot import PLAIN, Comparison, TensorCopy, is_under_modes

if TYPE_CHECKING:
    from kfuzz.monitor.gate.lanes import Underway
    from kfuzz.monitor.monitored import Monitor

_NESTED: Final = frozenset({list, tuple, dict})
_HOLE: Final = object()  # in the place of a tensor
# Of a call that writes its results to no memory of the caller's.
_NO_PLACES: Final = Call({})
_NO_IDS: Final[frozenset[int]] = frozenset()


def gated(
    monitor: "Monitor",
    gate: DeviceGate,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    number: int,
) -> Any:
    """Make a call that the host gate passed; what it does and raises is its own."""
    if not gate.wants():
        return function(*args, **kwargs)
    device = _device_of(args, kwargs)
    if device is None:
        failure = "the device gate failed"
        flagged = gate.on_cpu and monitor.is_outlier(args, kwargs, gate.flags, failure)
        if not flagged:
            return function(*args, **kwargs)
        return monitor.sampled(function, args, kwargs, number, Reason.OUTLIER)
    begun = _begun(monitor, gate, args, kwargs, device, number)
    if begun is None:
        return function(*args, **kwargs)
    underway, call = begun
    try:
        returned = function(*args, **kwargs)
    except BaseException:
        monitor.count("raised")
        _after(monitor, gate, underway, None)
        raise
    try:
        underway.handed, parts = monitor.results_of(call, returned)
    except Exception as error:
        monitor.tell("errors", "a result could not be copied", str(error), error)
        parts = None
    _after(monitor, gate, underway, parts)
    return returned


def _begun(
    monitor: "Monitor",
    gate: DeviceGate,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    device: torch.device,
    number: int,
) -> "tuple[Underway, Call] | None":
    """Have the device decide about a call; None where it does not. Never raises."""
    try:
        if why := _hindrance(monitor, device):
            monitor.tell("skipped", "not seen by the device gate", why)
            return None
        call, places = _NO_PLACES, _NO_IDS
        if monitor.settles:
            found = monitor.call_of(args, kwargs)
            if found is None:
                return None
            call = found  # tells where the results are
            # What only receives results holds anything before the call.
            places = frozenset(map(id, call.written.values()))
            places -= frozenset(map(id, call.tensors.values()))
        values = (*args, *kwargs.values()) if kwargs else args
        tensors, held, why = _apart(values, places)
        if why:
            monitor.tell("skipped", "not seen by the device gate", why)
            return None
        tf32 = monitor.subject.products()
        underway = gate.look(tensors, device, number)
        if underway is None:
            why = "too many tensors, too large, with gaps, or no Triton"
            monitor.tell("skipped", "not seen by the device gate", why)
            return None
        underway.tf32 = tf32
        if monitor.settles:
            underway.settled = _settled(call, tensors)
        else:
            underway.held, underway.names = held, (*kwargs,)
        return underway, call
    except Exception as error:
        monitor.tell("errors", "the device gate failed", str(error), error)
        return None


def _device_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device | None:
    """Return the GPU that a call's tensors lie on; None for none."""
    for x in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(x, Tensor) and x.is_cuda:
            return x.device
    return None


def _hindrance(monitor: "Monitor", device: torch.device) -> str:
    """Return what keeps the device gate from looking at any call now, "" if nothing."""
    if is_under_modes():
        return "a mode of torch is active"
    if torch.is_autocast_enabled("cuda") and not monitor.options.autocast:
        return "under torch.autocast: see autocast="
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return "a CUDA graph is being captured"
    return ""


def _apart(
    values: Iterable[Any], places: frozenset[int]
) -> tuple[list[Tensor], list[Any], str]:
    """Return a call's tensors, what else is kept of its arguments, and why neither.

    Args:
        values: the arguments.
        places: ids of those that only receive results.
    """
    tensors: list[Tensor] = []
    held: list[Any] = []
    for x in values:
        kind = type(x)
        if kind in PLAIN:
            if id(x) not in places:
                tensors.append(x)
            held.append(_HOLE)
        elif kind in _NESTED:
            return [], [], "an argument is a list, a tuple or a dictionary"
        elif isinstance(x, Tensor):
            return [], [], "a tensor is no plain one"
        else:
            held.append(x)
    return tensors, held, ""


def _settled(call: Call, tensors: Sequence[Tensor]) -> Settled:
    """Return a call without its tensors: what objects say now, they may not say later.

    Args:
        call: as its contract knows it.
        tensors: those that the gate looks at, in order.
    """
    order = {id(x): i for i, x in enumerate(tensors)}
    places = {name: order.get(id(x), -1) for name, x in call.tensors.items()}
    return Settled(places, dict(call.scalars), call.rest)


def _after(
    monitor: "Monitor", gate: DeviceGate, underway: "Underway", parts: Any
) -> None:
    try:
        gate.after(underway, parts)
    except Exception as error:
        monitor.tell("errors", "the device gate failed", str(error), error)


def told(monitor: "Monitor", news: Told) -> None:
    """Count what the device decided, and have what it kept checked."""
    for name, count in (
        ("outliers", news.flagged), ("dropped", news.lost), ("skipped", news.unfit),
    ):  # fmt: skip
        for _ in range(count):
            monitor.count(name)
    for underway in news.kept:
        monitor.count("sampled")
        held = Held(functools.partial(underway.lane.give, underway.slot))
        record = _record(monitor, underway, held)
        if record is None:
            held.release()
        elif not runtime.offer(functools.partial(monitor.check, record)):
            monitor.count("dropped")
            held.release()


def _found(
    monitor: "Monitor", underway: "Underway", before: Sequence[TensorCopy]
) -> Settled | None:
    """Return the contract's arguments, found from the copies in the place of tensors.

    None where it says nothing of such a call.
    """
    left = iter(before)
    values = [next(left).values if x is _HOLE else x for x in underway.held]
    names = underway.names
    first = len(values) - len(names)
    args, kwargs = tuple(values[:first]), dict(zip(names, values[first:], strict=True))
    call = monitor.call_of(args, kwargs, later=True)
    return _settled(call, [copy.values for copy in before]) if call else None


def _record(monitor: "Monitor", underway: "Underway", held: Held) -> Record | None:
    """Return a kept call as it is checked; None where its contract says nothing."""
    before, after = underway.copies()
    settled = underway.settled or _found(monitor, underway, before)
    if settled is None:
        return None
    if min(settled.places.values(), default=0) < 0:
        why = "the contract speaks of tensors that are not passed"
        monitor.tell("skipped", "not seen by the device gate", why)
        return None
    returned = underway.returned
    assert returned is not None
    seen = Seen(
        {name: before[place] for name, place in settled.places.items()},
        settled.scalars,
        returned.filled(after),
        {},
        underway.handed,
        settled.rest,
        False,
        underway.tf32,
    )
    compared = Comparison(None, {})
    return Record(seen, compared, [held], underway.number, Reason.OUTLIER)
