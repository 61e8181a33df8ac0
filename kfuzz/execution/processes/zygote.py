"""The process that children are forked from: modules loaded, nothing run.

Started by exec with its environment already right. It must stay forkable: no
torch operation (an OpenMP pool in the parent makes torch hang in every forked
child), no call into torch.cuda, no user's file, no thread.
"""

import contextlib
import fcntl
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator

from kfuzz.core.errors import HarnessError
from kfuzz.execution.processes import forking
from kfuzz.execution.processes.forking import Forking
from kfuzz.execution.processes.wire import Channel, ignore_interrupts

# An import that never ends must not leave a zygote behind that no longer reads
# its control socket; importing torch from a cold network disk takes tens of seconds.
PRELOAD_SECONDS = 180


def main() -> None:
    """Run a zygote; the campaign is its only caller.

    Arguments: the descriptor of its connection, whether messages are pickled, what
    children serve, what it loads.
    """
    descriptor = int(sys.argv[1])
    pickled, serve, preload = sys.argv[2:]
    os.set_inheritable(descriptor, False)
    # Ctrl-C is the campaign's to obey; children inherit this.
    ignore_interrupts()
    signal.alarm(PRELOAD_SECONDS)
    control = Channel(socket.socket(fileno=descriptor), pickled=pickled == "True")
    try:
        with _ending_with(descriptor):
            forking.load_modules(filter(None, preload.split(",")))
            server = Forking(control, serve)
    except (ImportError, HarnessError) as error:  # a person reads this: one line
        sys.exit(f"{type(error).__name__}: {error}")
    signal.alarm(0)

    server.run({"ready": True})
    # Nothing is worth tidying up, and with torch loaded that takes a third of a
    # second, for which the campaign would wait.
    os._exit(0)


@contextlib.contextmanager
def _ending_with(control: int) -> Iterator[None]:
    """End this process at once if the campaign does, whatever is being imported.

    Nothing is sent before the greeting: what happens to the connection (fcntl(2),
    O_ASYNC) is that its other end is closed. The signal's default action needs no
    Python. A signal of the parent's death would not do: it comes where the thread ends
    that began this process.
    """
    flags = fcntl.fcntl(control, fcntl.F_GETFL)
    fcntl.fcntl(control, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(control, fcntl.F_SETFL, flags | os.O_ASYNC)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    if poll.poll(0):  # it ended before that took effect
        os._exit(1)
    yield
    fcntl.fcntl(control, fcntl.F_SETFL, flags)


if __name__ == "__main__":
    main()
