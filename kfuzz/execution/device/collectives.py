"""A kernel beside an all-reduce: two GPUs, a process on each, NCCL between them.

In turn: the kernel runs, its result is reduced over both, the next call follows.
Overlapped: while one stream runs the kernel, another reduces the result of the call
before. What the all-reduce made is compared with an all-reduce, afterwards, of copies
that were taken of the results before the next call began. The sum of two is one
rounded addition, whichever way NCCL takes, so that equal bits are what is to be seen.
"""

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from kfuzz.contracts.evidence import Torn
from kfuzz.execution.processes.child import LOOK, OwnProcess

RANKS: Final = 2
STEPS: Final = 6
"""Calls in a row; each but the first meets the all-reduce of the one before."""

USUAL_SECONDS: Final = 10.0
"""Two processes import torch, load the kernel and set up NCCL."""

LIMIT_SECONDS: Final = 120.0
"""For both, on a machine that is busy."""


def unavailable(devices: int) -> str:
    """Return why no collective can be tried with so many GPUs, "" where one can."""
    if devices < RANKS:
        return "the run has one GPU: a collective takes two"
    if not dist.is_available() or not dist.is_nccl_available():
        return "this build of torch has no NCCL"
    return ""


def run_ranks(
    entry: str,
    request: object,
    *,
    step: Callable[[], None],
    beside: Mapping[str, str],
    limit: float = LIMIT_SECONDS,
) -> list[Any]:
    """Have a process for each rank answer a request; none outlives it.

    Args:
        entry: what a rank serves, see `OwnProcess`: it is sent the request, its number
            and a folder that both share.
        request: the request.
        step: called several times a second, for a watchdog.
        beside: variables under which a rank sees both GPUs.
        limit: seconds for both.

    Returns:
        The replies; empty if a rank failed or did not reply in time.
    """
    # Multicast is left off: not every machine that has NVLink can set it up.
    env = {**os.environ, **beside, "NCCL_NVLS_ENABLE": "0"}
    replies: dict[int, Any] = {}
    with ExitStack() as stack:
        prefix = "kfuzz-collective-"
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix))
        ranks = [
            stack.enter_context(OwnProcess(entry, env, start_new_session=True))
            for _ in range(RANKS)
        ]
        for rank, process in enumerate(ranks):
            process.send((request, rank, folder))
        deadline = time.monotonic() + limit
        try:
            while len(replies) < RANKS:
                if time.monotonic() >= deadline:
                    return []
                step()
                for rank, process in enumerate(ranks):
                    if rank not in replies and process.ready(LOOK):
                        replies[rank] = process.receive()
        except (EOFError, OSError):  # one that failed leaves the other waiting for it
            return []
    return [replies[rank] for rank in range(RANKS)]


def compared(
    call: Callable[[int], Mapping[str, Tensor]], device: torch.device
) -> Torn | None:
    """Call the kernel of one rank in both orders; return what differs between them.

    Args:
        call: runs the kernel for a step and returns its results by name.
        device: where.
    """

    def reduced(results: Mapping[str, Tensor]) -> dict[str, Tensor]:
        copies = {n: y.clone() for n, y in results.items()}
        for y in copies.values():
            dist.all_reduce(y)
        torch.cuda.synchronize(device)
        return copies

    for number in range(STEPS):  # what is compiled on first use is compiled now
        results = call(number)
        torch.cuda.synchronize(device)
        reduced(results)
    compute, other = (torch.cuda.Stream(device) for _ in range(2))  # type: ignore[no-untyped-call]
    made: list[Mapping[str, Tensor]] = []
    kept: list[dict[str, Tensor]] = []
    for number in range(STEPS):
        with torch.cuda.stream(compute):
            results = call(number)
            # Before the next call: what the kernel left, whatever becomes of it.
            kept.append({n: y.clone() for n, y in results.items()})
            ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ready.record(compute)
        other.wait_event(ready)
        with torch.cuda.stream(other):
            for y in results.values():
                dist.all_reduce(y)
        made.append(results)
    torch.cuda.synchronize(device)
    wanted = [reduced(copies) for copies in kept]  # all, or the other rank waits
    for got, right in zip(made, wanted, strict=True):
        for name, one in got.items():
            if (torn := difference(name, one, right[name])) is not None:
                return torn
    return None


def difference(output: str, got: Tensor, wanted: Tensor) -> Torn | None:
    """Return where two results hold other numbers; None if nowhere, NaN equals NaN."""
    wrong = ~((got == wanted) | (got.isnan() & wanted.isnan()))
    places = wrong.nonzero()
    if not len(places):
        return None
    index = tuple(int(i) for i in places[0])
    return Torn(
        output, index, len(places), float(got[index]), float(wanted[index]),
        got.numel(),
    )  # fmt: skip
