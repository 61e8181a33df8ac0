"""One rank of a kernel beside an all-reduce, and starting both."""

import datetime
import os
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.evidence import Collected
from kfuzz.core.recipe import Case, config_of
from kfuzz.core.verdict import named
from kfuzz.evaluation.calling import keywords_of
from kfuzz.evaluation.sanitized import placed
from kfuzz.execution.calls.tuning import held
from kfuzz.execution.device import collectives
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.device.collectives import LIMIT_SECONDS, RANKS, compared
from kfuzz.execution.interpreter.watch import watch
from kfuzz.execution.values.fills import SEED, logical_values, seeded
from kfuzz.targets.load import load, requested

ENTRY: Final = "kfuzz.evaluation.collective:serve"

# What every NCCL reduces.
_REDUCED: Final = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def probe(opened: Mapping[str, Any], case: Case, step: Callable[[], None]) -> Collected:
    """Run a kernel beside an all-reduce on two GPUs.

    Args:
        opened: the request with which the kernel was opened.
        case: finite inputs.
        step: called now and then, for a watchdog.
    """
    beside: dict[str, str] = opened.get("beside", {})
    if not backend_of(opened["device"]).has.collectives:
        return Collected("collectives are tried on GPUs only")
    seen = max((text.count(",") + 1 for text in beside.values()), default=1)
    if reason := collectives.unavailable(seen):
        return Collected(reason)
    made: list[Collected] = collectives.run_ranks(
        ENTRY, (opened, case), step=step, beside=beside
    )
    if not made:
        return Collected("the two processes did not finish")
    return next((m for m in made if m.reason), None) or next(
        (m for m in made if m.torn is not None), Collected()
    )


def caller(
    kernel: BoundKernel, case: Case, device: torch.device
) -> Callable[[int], dict[str, Tensor]]:
    """Return what calls a kernel for a step, each in memory of its own.

    Steps take the case's data and the negated in turn, so that bytes of another step
    show.
    """
    cpu = torch.device("cpu")
    values = {name: logical_values(case, name, cpu) for name in case.tensors}
    negated = {n: -x if x.dtype in _REDUCED else x for n, x in values.items()}
    steps = [
        [placed(spec, data[n], device) for n, spec in case.tensors.items()]
        for data in (values, negated) * (collectives.STEPS // 2)
    ]
    config = config_of(case)
    keywords = keywords_of(kernel, case, values, config)
    names = kernel.operator.outputs

    def call(number: int) -> dict[str, Tensor]:
        with torch.no_grad(), watch(config=config):
            called = held(kernel.taking(case.tensors), kernel.tuners)
            returned = called(*steps[number], **keywords)
        return named(returned, names)  # type: ignore[return-value]

    return call


def serve(connection: Connection) -> None:
    """Be one rank."""
    null = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):  # a user's file may print, and NCCL does
        os.dup2(null, descriptor)
    (opened, case), rank, folder = connection.recv()
    connection.send(run(opened, case, rank, Path(folder)))


def run(opened: Mapping[str, Any], case: Case, rank: int, folder: Path) -> Collected:
    """Return what one rank sees."""
    source = requested(opened)
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl", init_method=f"file://{folder / 'store'}", rank=rank, world_size=RANKS,
        timeout=datetime.timedelta(seconds=LIMIT_SECONDS), device_id=device,
    )  # fmt: skip
    kernel = load(source, root=Path(opened["root"]))[0].kernel
    if kernel.declaration.out or kernel.declaration.inplace:
        return Collected("its results share memory with its arguments")
    with seeded(device, SEED):
        call = caller(kernel, case, device)
        first = call(0)
        if any(y.dtype not in _REDUCED for y in first.values()):
            return Collected("NCCL sums no such results")
        if not all(y.is_contiguous() for y in first.values()):
            return Collected("NCCL sums contiguous results only")
        return Collected(torn=compared(call, device))
