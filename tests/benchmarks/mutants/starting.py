"""Whether a mutant starts: a search of one ordinary input, in the place of a peer's."""

from dataclasses import replace

import torch

from kfuzz.execution.device.backends import is_lost
from tests.benchmarks.peers.budgeted import Trial
from tests.benchmarks.peers.subject import Budget, Found, Subject

STARTS = f"{__name__}:starts"


def starts(subject: Subject, budget: Budget, seed: int) -> Found:
    """Call a kernel once on an ordinary input; the message says what it raises.

    What does not compile, or raises whatever it is given, is no fault that anything has
    to search for. What the device reports, or ends the process, is one.
    """

    def compare(results: object, wanted: object) -> None:
        if subject.device.type == "cuda":
            torch.cuda.synchronize(subject.device)

    trial = Trial(subject, budget, compare)
    random = torch.Generator().manual_seed(seed)
    sizes = subject.friendly()
    tensors = list(subject.ordinary(sizes, subject.usual_dtype, random))
    trial.try_input(tensors, subject.dims(sizes)[-1])
    found = trial.found()
    raised = "" if is_lost(subject.device) else found.message
    return replace(found, found=False, message=raised)
