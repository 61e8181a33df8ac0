"""The program that compute-sanitizer watches: one call of a kernel on one case.

Each argument has an allocation of its own, as large as its storage and no larger, and
holds nothing but its elements; nothing else runs on the device. Run as
`python -m kfuzz.evaluation.sanitized REQUEST RESULT`, both JSON files.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.codec import decode
from kfuzz.core.errors import KfuzzError
from kfuzz.core.recipe import Case, TensorSpec, config_of
from kfuzz.evaluation.calling import keywords_of
from kfuzz.execution.calls.results import raised_by
from kfuzz.execution.calls.tuning import held
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.interpreter.watch import watch
from kfuzz.execution.values.fills import SEED, logical_values, seeded
from kfuzz.targets.load import load, requested

PROGRAM: Final = "kfuzz.evaluation.sanitized"
_CPU: Final = torch.device("cpu")


def placed(spec: TensorSpec, values: Tensor | None, device: torch.device) -> Tensor:
    """Return an argument in an allocation that ends with it.

    Args:
        spec: its recipe.
        values: its logical elements, on the CPU; None to leave memory as it comes.
        device: where it lies.
    """
    dtype: torch.dtype = getattr(torch, spec.dtype)
    memory = torch.empty(spec.offset + spec.span, dtype=dtype, device=device)
    view = memory.as_strided(spec.shape, spec.element_strides, spec.offset)
    if values is not None:
        into, given = view, values.to(device)
        for axis, step in enumerate(spec.element_strides):
            if step == 0 and spec.shape[axis] > 1:  # one element, not many
                into, given = into.narrow(axis, 0, 1), given.narrow(axis, 0, 1)
        into.copy_(given)
    return view


def call(kernel: BoundKernel, case: Case, device: torch.device) -> None:
    """Call the kernel once, and wait for it."""
    values = {name: logical_values(case, name, _CPU) for name in case.tensors}
    arguments = [
        placed(spec, values[name], device) for name, spec in case.tensors.items()
    ]
    if kernel.declaration.out:
        arguments += [
            placed(place.spec(), None, device) for place in case.destinations.values()
        ]
    config = config_of(case)
    keywords = keywords_of(kernel, case, values, config)
    backend_of(device).wait(device)
    with watch(config=config), seeded(device, SEED), torch.no_grad():
        held(kernel.taking(case.tensors), kernel.tuners)(*arguments, **keywords)
    backend_of(device).wait(device)


def run(request: Mapping[str, Any]) -> dict[str, str]:
    """Do what a request asks; return what was raised, or what is wrong with it.

    Args:
        request: "cwd", "root", "file", "module", "name", "device" and "case".
    """
    source = requested(request)
    try:
        kernel = load(source, root=Path(request["root"]))[0].kernel
        case = decode(Case, request["case"], "case")
    except KfuzzError as error:
        return {"problem": str(error)}
    device = torch.device(request["device"])
    try:
        call(kernel, case, device)
    except Exception as error:
        raised = raised_by(error, device)
        return {"raised": f"{raised.type}: {raised.message}"}
    return {}


def main(arguments: list[str]) -> None:
    """Run the request in one file and write the result to another."""
    request, result = map(Path, arguments)
    result.write_text(json.dumps(run(json.loads(request.read_text()))))


if __name__ == "__main__":
    main(sys.argv[1:])
    # A context that a fault has ended makes the interpreter's own exit fail.
    os._exit(0)
