"""A campaign for people: progress, each finding at once, a table at the end."""

import os
import shlex
from dataclasses import replace
from typing import Final, Self, TextIO

from rich.console import Console
from rich.text import Text

from kfuzz.core import event as events
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import UNCONFIRMED, State
from kfuzz.report import finding_view
from kfuzz.report.json_report import replay_lines, replay_total
from kfuzz.report.tables import Gathered, Shown, kernel_lines, overview, uncompared
from kfuzz.report.text import counted, one_line, plain

# How far a campaign is: one live line on a terminal, a line now and then elsewhere.

# Logs of CI jobs: often enough to see life, seldom enough to read.
SECONDS_BETWEEN_LINES: Final = 3.0
# Cases per second from which fractions say nothing.
_WHOLE_RATE: Final = 10.0


def progress_text(event: events.Progress, kernels: int) -> str:
    """Return the counters on one line, with the number of kernels in all."""
    rate = event.cases / event.elapsed_s if event.elapsed_s > 0 else 0.0
    shown = f"{rate:.0f}" if rate >= _WHOLE_RATE else f"{rate:.1f}"
    return (
        f"{event.elapsed_s:.0f} s  {event.cases} cases ({shown}/s)  "
        f"{event.kernels_done}/{kernels} kernels done  "
        f"worst ratio {event.worst_ratio:.2g}  "
        f"findings {event.findings}"
    )


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Let the verb end the campaign cleanly; rich would exit on the spot."""
        raise


class TerminalReport:
    """Folds events to text; a context manager, for the live line.

    Args:
        out: where to; a live line only if it is a terminal that can move its
            cursor.
        quiet: neither live line nor progress nor notices.
        verbose: tracebacks and what children printed, too.
        corpus: the folder if it is not the default, for the commands printed.
        repeat: the command line that repeats the run, without its seed; "" to
            leave that out.
        summary: whether the kernels' verdicts stand at the end.
        target: what `--target` was given, for the commands printed.
    """

    def __init__(
        self,
        out: TextIO,
        *,
        quiet: bool = False,
        verbose: bool = False,
        corpus: str = "",
        repeat: str = "",
        summary: bool = True,
        target: str = "",
    ) -> None:
        # No wrapping: lines are copied from terminals and searched in logs.
        self._console = _Console(
            file=out,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=True,
            # Rich keeps bold and dim; who asks for no colour wants neither.
            color_system=None if os.environ.get("NO_COLOR") else "auto",
        )
        self._quiet, self._verbose = quiet, verbose
        self._options = f" --corpus {shlex.quote(corpus)}" if corpus else ""
        self._repeat, self._summary, self._target = repeat, summary, target
        moves = out.isatty() and not self._console.is_dumb_terminal
        self._live = self._console.status("starting") if moves and not quiet else None
        self._kernels, self._progress_s = 0, 0.0
        self._done: set[str] = set()
        self._lined: set[str] = set()
        self._replayed: set[str] = set()
        self._run = Gathered()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live:
            self._live.stop()

    def feed(self, event: events.Event) -> None:
        """Take the next event.

        Raises:
            BrokenPipeError: nobody reads any more.
        """
        self._run.feed(event)
        match event:
            case events.RunStarted():
                self._start(event)
            case events.Progress() if self._live:
                self._live.update(Text(progress_text(event, self._kernels)))
            case events.Progress() if not self._quiet:
                if event.elapsed_s >= self._progress_s + SECONDS_BETWEEN_LINES:
                    self._progress_s = event.elapsed_s
                    self._say(progress_text(event, self._kernels))
            case events.FindingSaved(stage="found"):
                self._found(event)
            case events.FindingSaved(stage="done"):
                self._block(event.kernel, event.finding)
            case events.FindingReplayed():  # its block would say nothing new
                self._replayed.add(event.id)
                for line in replay_lines(event, options=self._options):
                    self._say(line)
            case events.Notice() if not self._quiet:
                place = f"{one_line(event.kernel)}: " if event.kernel else ""
                self._say(f"note: {place}{one_line(event.message)}")
                if self._verbose:
                    for line in plain(event.trace).splitlines():
                        self._say(f"  {line}")
            case events.RunFinished():
                self._end(event)

    def _start(self, event: events.RunStarted) -> None:
        self._kernels = len(event.kernels)
        kernels = counted(self._kernels, "kernel")
        text = f"{kernels} on {event.device}, seed {event.seed}"
        text += f", {event.jobs} at once" if event.jobs > 1 else ""
        self._say(text)
        if self._live:
            self._live.start()

    def _found(self, event: events.FindingSaved) -> None:
        if not event.is_new:
            return  # a mark covers it: it is reported quietly once it is reduced
        signature = event.finding.signature
        what = one_line(f"{signature.kernel}: {event.finding.summary}")
        self._say(Text(f"candidate {what} ({signature.contract}); confirming it"))

    def _block(self, kernel: str, finding: Finding) -> None:
        """Print all that is known about a finding, and what to type next."""
        if finding.id in self._replayed:  # as a replayed one
            self._replayed.discard(finding.id)
            self._done.add(finding.id)
            return
        if finding.id in self._lined:
            self._say(f"\nthe same change mends another failure: {finding.id}, too")
            return
        if finding.id in self._done and finding.line is not None:
            self._lined.add(finding.id)
            self._say(f"\nline of {finding.id}")
            for line in finding_view.line_lines(finding.line):
                self._say(f"  {line}")
            return
        if finding.id in self._done:
            self._say(f"  the same failure as {finding.id} above")
            return
        self._done.add(finding.id)
        shown = next(
            s
            for s in self._run.findings
            if (s.kernel, s.finding.id) == (kernel, finding.id)
        )
        if shown.known:
            self._say(known_line(shown))
            return
        made = self._view(shown)
        depth = finding_view.Depth.MEDIUM if self._verbose else finding_view.Depth.SHORT
        head, *lines = finding_view.finding_lines(made, depth)
        word, rest = head[: len(made.state.headline)], head[len(made.state.headline) :]
        style = "bold red" if shown.fails else "bold yellow"
        below = (f"\n{line}" for line in lines)
        self._say(Text.assemble("\n", (word, style), (rest, "bold"), *below))

    def _end(self, event: events.RunFinished) -> None:
        self.__exit__()
        finished = list(self._run.kernels.values())
        findings = [(k.kernel, f) for k in finished for f in k.findings]
        for name, finding in findings:
            if finding.id not in self._done:
                self._block(name, finding)
        if self._run.replayed:
            self._say(f"\n{replay_total(self._run.replayed)}")
        if self._summary:
            lines = ["", *overview(finished)] if finished else []
            for kernel in finished:
                lines += ["", *kernel_lines(kernel, verbose=self._verbose)]
            self._say("\n".join([*lines, ""]))
        self._failed()
        cases = sum(k.cases for k in finished)
        words = counted(len(findings), "finding") if findings else "no finding"
        states = [finding.state for _, finding in findings]
        known = states.count(State.KNOWN)
        words += f" ({known} of them known)" if known else ""
        if late := states.count(State.NEW):
            words += f" ({late} of them not confirmed: time was up)"
        if other := sum(s in UNCONFIRMED for s in states) - late:
            words += f" ({other} of them not confirmed; see `--fail-on any`)"
        idle = sum(bool(k.uncompared) for k in finished)
        stopped = " (interrupted; everything is saved)" if event.interrupted else ""
        spent = f"{event.startup_s:.1f} s to start, {event.import_s:.1f} s importing"
        started = f" ({spent})" if event.startup_s else ""
        if event.reducing_s >= 0.1:
            started += f" with {event.reducing_s:.1f} s to reduce and locate findings"
        judged = counted(cases, "case") + (f", {uncompared(idle)}" if idle else "")
        self._say(
            f"{words} in {judged}, {event.elapsed_s:.1f} s{started} on "
            f"{event.device}, seed {event.seed}{stopped}"
        )
        if self._repeat:
            self._say(f"repeat: {self._repeat} --seed {event.seed}")

    def _failed(self) -> None:
        """List what fails the run, and what was not confirmed, one finding a line."""
        failed = {
            s.finding.id: f"{s.finding.signature.kernel}: {s.finding.summary}"
            for s in self._run.findings
            if s.fails
        }
        for event in self._run.replayed:
            if event.fails:
                failed.setdefault(event.id, event.message)
        for id, what in failed.items():
            self._say(f"FAILED {id} - {one_line(what)}")
        for shown in self._run.findings:
            if shown.finding.state in UNCONFIRMED:
                made = self._view(shown)
                word = made.state.headline
                self._say(f"{word} {made.id} - {made.summary}; {made.replay}")

    def _view(self, shown: Shown) -> finding_view.FindingView:
        outside = shown.outside or self._target
        return finding_view.view(replace(shown, outside=outside), self._options)

    def _say(self, line: str | Text) -> None:
        self._console.print(line, soft_wrap=True)


def known_line(shown: Shown) -> str:
    """Return the one line that is printed of a finding people know."""
    finding = shown.finding
    reason = f" ({one_line(shown.reason)})" if shown.reason else ""
    return f"KNOWN {finding.id}{reason}: {one_line(finding.failure.message)}"
