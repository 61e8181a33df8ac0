"""JSON Lines: every event of a run as it happens, for programs and `kfuzz report`.

Each is written at once, so that a killed run leaves what came before.
"""

from collections.abc import Callable
from typing import Final, TextIO

from kfuzz.core.event import Event
from kfuzz.report.kinds import ReportKind
from kfuzz.report.text import event_line


def stream(out: TextIO) -> Callable[[Event], None]:
    """Return what writes an event as one strict JSON object on a line of its own."""

    def feed(event: Event) -> None:
        out.write(event_line(event))
        out.flush()

    return feed


KIND: Final = ReportKind(stream=stream)
