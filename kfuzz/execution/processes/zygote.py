"""The process that children are forked from: modules loaded, nothing run.

Started by exec with its environment already right. It must stay forkable: no
torch operation (an OpenMP pool in the parent makes torch hang in every forked
child), no call into torch.cuda, no user's file, no thread.
"""

import argparse
import os
import signal
import socket
import sys

from kfuzz.core.errors import HarnessError
from kfuzz.execution.processes import serving
from kfuzz.execution.processes.forking import Forking
from kfuzz.execution.processes.interrupts import ignore_interrupts
from kfuzz.execution.processes.wire import Channel

# An import that never ends must not leave a zygote behind that no longer reads
# its control socket; importing torch from a cold network disk takes tens of seconds.
PRELOAD_SECONDS = 180


def main() -> None:
    """Run a zygote; the campaign is its only caller."""
    parser = argparse.ArgumentParser(prog="kfuzz.execution.processes.zygote")
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--serve", required=True)
    parser.add_argument("--preload", default="")
    arguments = parser.parse_args()

    os.set_inheritable(arguments.control, False)
    # Ctrl-C is the campaign's to obey; children inherit this.
    ignore_interrupts()
    signal.alarm(PRELOAD_SECONDS)
    try:
        serving.load_modules(filter(None, arguments.preload.split(",")))
        serve = serving.resolve(arguments.serve)
    except (ImportError, HarnessError) as error:  # a person reads this: one line
        sys.exit(f"{type(error).__name__}: {error}")
    signal.alarm(0)

    control = Channel(socket.socket(fileno=arguments.control))
    Forking(control, serve, lambda reply: reply).run({"ready": True})
    # Nothing is worth tidying up, and with torch loaded that takes a third of a
    # second, for which the campaign would wait.
    os._exit(0)


if __name__ == "__main__":
    main()
