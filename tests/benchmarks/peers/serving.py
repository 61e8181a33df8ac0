"""The child's side: one search by one peer, in a process that it may end."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.witnesses.witness import Witness
from kfuzz.core.codec import decode
from kfuzz.targets.load import Source
from kfuzz.targets.load import load as load_source
from tests.benchmarks.peers import load
from tests.benchmarks.peers.budgeted import tell, warm_up
from tests.benchmarks.peers.subject import Budget, Subject

SERVE = "tests.benchmarks.peers.serving:serve"

Message = dict[str, Any]


def answer(message: Message) -> Message:
    """Search one kernel; see `peers.asking.Peers.search`."""
    torch.set_num_threads(1)
    try:
        search = load(message["peer"])
    except ImportError as error:
        return {"unavailable": f"{type(error).__name__}: {error}"}
    witness = decode(Witness, message["witness"], "witness")
    device = message["device"]
    kernel = witness.load() if not message["file"] else _of_file(message)
    subject = Subject(kernel, witness.shapes, witness.dtype, device)
    warm_up()
    budget = Budget(message["seconds"], message["cases"])
    tried = os.open(message["tried"], os.O_WRONLY)
    tell(lambda number: os.pwrite(tried, number.to_bytes(8, "little"), 0))
    found = search(subject, budget, message["seed"])
    return vars(found)


def _of_file(message: Message) -> BoundKernel:
    """Return the kernel of a file that stands in for the witness's module."""
    file, name = Path(message["file"]), message["witness"]["kernel"]
    return load_source(Source(file=file, only=(name,)), root=file.parent)[0].kernel


def serve() -> Callable[[Message], Message]:
    """Return the handler of a fresh child."""
    return answer
