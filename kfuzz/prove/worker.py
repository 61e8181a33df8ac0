"""The process that proves: its Triton compiles, whatever the run's does.

Kernels are loaded as ever, their launches captured and nothing of them is run. It is
told targets and sends an outcome for each kernel, in order.
"""

import contextlib
import os
import signal
import sys
from multiprocessing.connection import Connection

from kfuzz.core.proof import KernelProof, Proven, ProvenProperty
from kfuzz.execution.processes import forked
from kfuzz.prove.proving import KernelProver, Outcome
from kfuzz.prove.tasks import Failed, Task
from kfuzz.targets.load import LoadedKernel, load_all


def main() -> None:
    """Prove what the first message names, and send what comes of it."""
    parent = os.getppid()
    forked.prctl(forked.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before that took effect
        sys.exit(1)
    connection = Connection(int(sys.argv[1]))
    task: Task = connection.recv()
    try:
        loaded = load_all(task.targets, root=task.root)
    except Exception as error:
        connection.send(Failed(str(error)))
        return
    for kernel in loaded:
        if not task.only or kernel.node_id in task.only:
            connection.send((kernel.node_id, _proved(kernel, task.seconds)))
    connection.send(None)


def _proved(loaded: LoadedKernel, seconds: float) -> Outcome:
    """Return what is proved of a kernel; an error of kfuzz's own proves nothing."""
    try:
        return KernelProver(loaded.kernel, loaded.node_id, seconds=seconds).run()
    except Exception as error:
        why = f"an error of kfuzz's own: {type(error).__name__}: {error}"
        if os.environ.get("KFUZZ_DEBUG"):
            raise
        found = ProvenProperty("all properties", Proven.OPEN, why)
        return Outcome(KernelProof(loaded.node_id, (found,)))


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, EOFError, OSError):
        main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
