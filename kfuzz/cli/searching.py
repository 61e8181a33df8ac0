"""The process that searches: it receives a configuration and sends its events.

The command line starts it (`kfuzz.cli.run`), is its only reader, and outlives it.
"""

import atexit
import contextlib
import os
import threading
from multiprocessing.connection import Connection

from kfuzz.cli.run import portable
from kfuzz.core.errors import KfuzzError
from kfuzz.core.features import hook
from kfuzz.engine.config import Engine, RunConfig
from kfuzz.engine.workers import zygotes
from kfuzz.engine.workers.zygotes import Home, home_of
from kfuzz.execution.processes import bytecode
from kfuzz.execution.processes.child import end, obey, served
from kfuzz.targets import load
from kfuzz.targets.load import resolve


def main() -> None:
    """Search as the first message says, and send what happens."""
    connection = served()
    os.set_inheritable(connection.fileno(), False)
    config: RunConfig = connection.recv()
    os.register_at_fork(after_in_child=connection.close)
    stop = threading.Event()

    def announce(target: str) -> None:
        with contextlib.suppress(OSError):
            connection.send(("importing", target))

    load.tell(announce)
    load.limit_to(config.import_seconds)
    try:
        if config.engine is Engine.HYPOTHESIS:
            zygotes.begin_here(config.device, homes(config))
        else:
            bytecode.keep()
        obey(connection, stop)
        search(config, stop, connection)
        last: object = "end"
    except Exception as error:
        last = ("raised", portable(error))
    with contextlib.suppress(OSError):
        connection.send(last)


def search(config: RunConfig, stop: threading.Event, connection: Connection) -> None:
    """Search, and send every event; go on to a clean end if nobody takes them."""
    from kfuzz.engine.search import campaign

    prover = hook("prover")
    for event in campaign.run(config, stop=stop, prover=prover):
        try:
            connection.send(("event", event))
        except OSError:
            stop.set()


def homes(config: RunConfig) -> list[Home]:
    """Return what the targets of a run have children import, if it is at hand."""
    found: dict[Home, None] = {}
    for target in config.targets:
        with contextlib.suppress(KfuzzError):  # the run reports it
            for source in resolve(target):
                found[home_of(source, config.root)] = None
    return list(found)


if __name__ == "__main__":
    main()
    # Nothing is worth tidying up, and with torch loaded that takes a third of a second.
    # But for what the user's file asked to be called.
    atexit._run_exitfuncs()
    end()
