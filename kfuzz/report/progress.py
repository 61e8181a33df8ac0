"""How far a campaign is: one live line on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from kfuzz.core.event import Event, FindingSaved, Progress, RunStarted

# Logs of CI jobs: often enough to see life, seldom enough to read.
SECONDS_BETWEEN_LINES: Final = 3.0
_LIVE_PER_SECOND: Final = 4.0
# Cases per second from which fractions say nothing.
_WHOLE_RATE: Final = 10.0


class PlainLines:
    """Prints a progress line at most every `SECONDS_BETWEEN_LINES`.

    Args:
        say: prints one line.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._kernels = 0
        self._last = 0.0

    def feed(self, event: Event) -> None:
        """Take the next event."""
        if isinstance(event, RunStarted):
            self._kernels = len(event.kernels)
        due = self._last + SECONDS_BETWEEN_LINES
        if isinstance(event, Progress) and event.elapsed_s >= due:
            self._last = event.elapsed_s
            self._say(progress_text(event, self._kernels, event.elapsed_s))


class LiveLine:
    """Shows the last progress at the foot of a terminal, its clock running.

    Args:
        console: a terminal.
    """

    def __init__(self, console: Console) -> None:
        self._kernels = 0
        self._last: Progress | None = None
        self._seen = time.monotonic()
        self._reducing = False
        # What kernels print in this process must not tear the line apart.
        self._live = Live(
            console=console,
            get_renderable=self._render,
            refresh_per_second=_LIVE_PER_SECOND,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
        )

    def feed(self, event: Event) -> None:
        """Take the next event."""
        if isinstance(event, RunStarted):
            self._kernels = len(event.kernels)
            self._live.start()
        if isinstance(event, FindingSaved):
            self._reducing = event.stage != "done"
        if isinstance(event, Progress):
            self._last, self._seen = event, time.monotonic()

    def stop(self) -> None:
        """Take the line away; the cursor is where it was."""
        self._live.stop()

    def _render(self) -> Text:
        elapsed = time.monotonic() - self._seen
        if self._last is None:
            text = f"{elapsed:.0f} s  starting"
        else:
            elapsed += self._last.elapsed_s
            text = progress_text(self._last, self._kernels, elapsed)
        text += "  reducing a finding" if self._reducing else ""
        return Text(text, style="dim", no_wrap=True, overflow="ellipsis")


def progress_text(event: Progress, kernels: int, elapsed_s: float) -> str:
    """Return the counters on one line.

    Args:
        event: the counters.
        kernels: kernels in all.
        elapsed_s: seconds to show, those of the event or later.
    """
    rate = event.cases / event.elapsed_s if event.elapsed_s > 0 else 0.0
    shown = f"{rate:.0f}" if rate >= _WHOLE_RATE else f"{rate:.1f}"
    return (
        f"{elapsed_s:.0f} s  {event.cases} cases ({shown}/s)  "
        f"{event.kernels_done}/{kernels} kernels done  "
        f"worst ratio {event.worst_ratio:.2g}  "
        f"findings {event.findings}"
    )
