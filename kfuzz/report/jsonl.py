"""JSON Lines: every event of a run as it happens, one strict JSON object a line."""

from typing import TextIO

from kfuzz.core.event import Event
from kfuzz.report.event_lines import EventLines


class JsonLines:
    """Writes each event at once, so that a killed run leaves what it told.

    Args:
        out: a text file; flushed after every line.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lines = EventLines()

    def feed(self, event: Event) -> None:
        """Write the next event.

        Raises:
            OSError: if the disk refuses.
        """
        self._out.write(self._lines.line(event))
        self._out.flush()
