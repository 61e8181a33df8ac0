"""A kernel beside an all-reduce: two GPUs, a process on each, NCCL between them.

In turn: the kernel runs, its result is reduced over both, the next call follows.
Overlapped: while one stream runs the kernel, another reduces the result of the call
before. What the all-reduce made is compared with an all-reduce, afterwards, of copies
that were taken of the results before the next call began. The sum of two is one
rounded addition, whichever way NCCL takes, so that equal bits are what is to be seen.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor

from kfuzz.contracts.evidence import Torn
from kfuzz.core.home import with_home
from kfuzz.execution.processes.child import in_group

RANKS: Final = 2
STEPS: Final = 6
"""Calls in a row; each but the first meets the all-reduce of the one before."""

USUAL_SECONDS: Final = 10.0
"""Two processes import torch, load the kernel and set up NCCL."""

LIMIT_SECONDS: Final = 120.0
"""For both, on a machine that is busy."""

_LOOK_SECONDS: Final = 0.1


def unavailable(devices: int) -> str:
    """Return why no collective can be tried with so many GPUs, "" where one can."""
    if devices < RANKS:
        return "the run has one GPU: a collective takes two"
    if not dist.is_available() or not dist.is_nccl_available():
        return "this build of torch has no NCCL"
    return ""


def run_ranks(
    command: Callable[[int, Path], Sequence[str]],
    *,
    step: Callable[[], None],
    beside: Mapping[str, str],
    limit: float = LIMIT_SECONDS,
) -> list[str]:
    """Run a process for each rank and return what each printed; none outlives it.

    Args:
        command: the command line of a rank, given a folder that both share.
        step: called several times a second, for a watchdog.
        beside: variables under which a rank sees both GPUs.
        limit: seconds for both.

    Returns:
        The outputs; empty if a rank failed or did not end in time.
    """
    with tempfile.TemporaryDirectory(prefix="kfuzz-collective-") as name:
        folder = Path(name)
        # Multicast is left off: not every machine that has NVLink can set it up.
        env = with_home({**os.environ, **beside, "NCCL_NVLS_ENABLE": "0"})
        with ExitStack() as stack:
            processes = []
            for rank in range(RANKS):
                log = stack.enter_context(_log(folder, rank).open("wb"))
                words, nowhere = command(rank, folder), subprocess.DEVNULL
                started = in_group(words, env=env, stdout=log, stderr=nowhere)
                processes.append(stack.enter_context(started))
            deadline = time.monotonic() + limit
            while any(p.poll() != 0 for p in processes):
                # One that failed leaves the other waiting for it.
                if any(p.poll() for p in processes) or time.monotonic() >= deadline:
                    return []
                step()
                time.sleep(_LOOK_SECONDS)
        return [_log(folder, rank).read_text() for rank in range(RANKS)]


def _log(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.txt"


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
