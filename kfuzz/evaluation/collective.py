"""One rank of a kernel beside an all-reduce, and starting both.

Run as `python -m kfuzz.evaluation.collective REQUEST RANK FOLDER PARENT`; prints a JSON
document.
"""

import datetime
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.evidence import Collected, Torn
from kfuzz.core.codec import decode, encode
from kfuzz.core.recipe import Case, config_of
from kfuzz.core.verdict import named
from kfuzz.evaluation.calling import keywords_of
from kfuzz.evaluation.sanitized import placed
from kfuzz.execution import parent
from kfuzz.execution.calls.tuning import held
from kfuzz.execution.device import collectives
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.device.collectives import LIMIT_SECONDS, RANKS, compared
from kfuzz.execution.interpreter.watch import watch
from kfuzz.execution.values.fills import SEED, logical_values, seeded
from kfuzz.targets.load import load, requested

PROGRAM: Final = "kfuzz.evaluation.collective"

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
    request = {**opened, "case": encode(case)}

    def command(rank: int, folder: Path) -> Sequence[str]:
        asked = folder / "request.json"
        if not asked.exists():
            asked.write_text(json.dumps(request))
        words = [str(asked), str(rank), str(folder)]
        return [sys.executable, *parent.bound(PROGRAM), *words]

    return told(collectives.run_ranks(command, step=step, beside=beside))


def told(outputs: Sequence[str]) -> Collected:
    """Return what both ranks said together."""
    if len(outputs) != RANKS:
        return Collected("the two processes did not finish")
    said = []
    for output in outputs:
        lines = output.strip().splitlines()  # a user's file may print, too
        try:
            said.append(json.loads(lines[-1]) if lines else {})
        except ValueError:
            said.append({})
    if any("torn" not in s for s in said):
        reasons = [s["reason"] for s in said if "reason" in s]
        return Collected(reasons[0] if reasons else "a process printed nothing")
    found = next((s["torn"] for s in said if s["torn"]), None)
    if found is None:
        return Collected()
    return Collected(torn=Torn(**{**found, "index": tuple(found["index"])}))


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


def run(request: Mapping[str, Any], rank: int, folder: Path) -> dict[str, Any]:
    """Do what a request asks; return what is to be printed."""
    source = requested(request)
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl", init_method=f"file://{folder / 'store'}", rank=rank, world_size=RANKS,
        timeout=datetime.timedelta(seconds=LIMIT_SECONDS), device_id=device,
    )  # fmt: skip
    kernel = load(source, root=Path(request["root"]))[0].kernel
    if kernel.declaration.out or kernel.declaration.inplace:
        return {"reason": "its results share memory with its arguments"}
    case = decode(Case, request["case"], "case")
    with seeded(device, SEED):
        call = caller(kernel, case, device)
        first = call(0)
        if any(y.dtype not in _REDUCED for y in first.values()):
            return {"reason": "NCCL sums no such results"}
        if not all(y.is_contiguous() for y in first.values()):
            return {"reason": "NCCL sums contiguous results only"}
        torn = compared(call, device)
    return {"torn": None if torn is None else asdict(torn)}


def main(arguments: list[str]) -> None:
    """Run one rank and print what it says."""
    asked, rank, folder = arguments
    said = run(json.loads(Path(asked).read_text()), int(rank), Path(folder))
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
    # To tear NCCL down takes longer than the probe, and may wait for the other.
    os._exit(0)
