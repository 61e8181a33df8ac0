"""The process that observes: its Triton interprets, and every access is recorded."""

import contextlib

from kfuzz.execution.launches.process import end, served
from kfuzz.prove.observing import observe
from kfuzz.prove.tasks import Task
from kfuzz.targets.load import load_all


def main() -> None:
    """Load what the first message names; then run what is asked for."""
    connection = served()
    task: Task = connection.recv()
    kernels = {k.node_id: k.kernel for k in load_all(task.targets, root=task.root)}
    while True:
        node_id, case = connection.recv()
        try:
            made = observe(kernels[node_id], case)
            connection.send(made)
        except Exception:  # whatever a kernel raises: it rejects the case
            connection.send(None)


if __name__ == "__main__":
    with contextlib.suppress(EOFError, OSError):
        main()
    end()
