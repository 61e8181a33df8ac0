"""Calls that the device gate looks at: before, after, and what it reported of them."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kfuzz.monitor.gate.device import DeviceGate, Told
from kfuzz.monitor.gate.host import Reason
from kfuzz.monitor.runtime import runtime
from kfuzz.monitor.seen import NOTHING, Seen
from kfuzz.store.life import utc_now

if TYPE_CHECKING:
    from kfuzz.monitor.gate.lanes import Underway
    from kfuzz.monitor.monitored import Monitor


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
        if not gate.on_cpu or not monitor.is_outlier(
            (*args, *kwargs.values()), gate.flags, "the device gate failed"
        ):
            return function(*args, **kwargs)
        return monitor.sampled(function, args, kwargs, number, Reason.OUTLIER)
    call = monitor.call_of(args, kwargs)
    underway = None
    if call is not None:
        try:
            underway = gate.look([*call.tensors.values()], device, number)
            if underway is not None:  # it holds nothing of the caller's memory
                underway.names = (*call.tensors,)
                underway.seen = Seen(
                    {}, call.scalars, NOTHING, rest=call.rest, tf32=call.tf32
                )
            else:
                why = "too many tensors, too large, with gaps, or no Triton"
                monitor.tell("skipped", "not seen by the device gate", why)
        except Exception as error:
            monitor.tell("errors", "the device gate failed", str(error), error)
    if call is None or underway is None:
        return function(*args, **kwargs)
    parts = None
    try:
        returned = function(*args, **kwargs)
        try:
            parts = monitor.results_of(call, returned)
        except Exception as error:
            monitor.tell("errors", "a result could not be copied", str(error), error)
        return returned
    except BaseException:
        monitor.count("raised")
        raise
    finally:
        try:
            gate.after(underway, parts)
        except Exception as error:
            monitor.tell("errors", "the device gate failed", str(error), error)


def _device_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device | None:
    """Return the GPU that a call's tensors lie on; None for none."""
    for x in (*args, *kwargs.values()):
        if isinstance(x, Tensor) and x.is_cuda:
            return x.device
    return None


def told(monitor: "Monitor", news: Told) -> None:
    """Count what the device decided, and have what it kept checked."""
    for name, count in (
        ("outliers", news.flagged), ("dropped", news.lost), ("skipped", news.unfit),
        ("sampled", len(news.kept)),
    ):  # fmt: skip
        for _ in range(count):
            monitor.count(name)
    for underway in news.kept:
        if not runtime.offer(functools.partial(_check, monitor, underway, utc_now())):
            monitor.count("dropped")
            underway.lane.give(underway.slot)


def _check(monitor: "Monitor", underway: "Underway", when: str) -> None:
    """Judge a kept call; runs in the worker."""
    try:
        before, after = underway.copies()
        seen = replace(
            underway.seen,
            tensors=dict(zip(underway.names, before, strict=True)),
            returned=underway.seen.returned.filled(after),
        )
        monitor.check(seen, underway.number, Reason.OUTLIER, when)
    finally:
        underway.lane.give(underway.slot)
