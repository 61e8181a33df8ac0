"""The process that searches: it is told what to do, and tells its events.

The command line starts it (`kfuzz.cli.run`), is its only reader, and outlives it.
"""

import atexit
import contextlib
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection

from kfuzz.cli.run import portable
from kfuzz.core.errors import KfuzzError
from kfuzz.core.event import Event
from kfuzz.core.features import hook
from kfuzz.engine.config import Engine, RunConfig
from kfuzz.engine.workers import zygotes
from kfuzz.engine.workers.zygotes import Home, home_of
from kfuzz.execution.processes import bytecode
from kfuzz.execution.processes.child import end, obey, work
from kfuzz.targets import load
from kfuzz.targets.load import resolve


def search(connection: Connection, stop: threading.Event) -> Iterator[Event]:
    """Search as the first message says, and yield what happens."""
    config: RunConfig = connection.recv()

    def tell(target: str) -> None:
        with contextlib.suppress(OSError):
            connection.send(("importing", target))

    load.tell(tell)
    load.limit_to(config.import_seconds)
    if config.engine is Engine.HYPOTHESIS:
        zygotes.begin_here(config.device, homes(config))
    else:
        bytecode.keep()
    obey(connection, stop)
    from kfuzz.engine.search import campaign

    yield from campaign.run(config, stop=stop, prover=hook("prover"))


def homes(config: RunConfig) -> list[Home]:
    """Return what the targets of a run have children import, if it is at hand."""
    found: dict[Home, None] = {}
    for target in config.targets:
        with contextlib.suppress(KfuzzError):  # the run says so
            for source in resolve(target):
                found[home_of(source, config.root)] = None
    return list(found)


if __name__ == "__main__":
    work(search, portable)
    # Nothing is worth tidying up, and with torch loaded that takes a third of a second.
    # But for what the user's file asked to be called.
    atexit._run_exitfuncs()
    end()
