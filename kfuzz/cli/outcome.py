"""What a run ends with: a fold of its events to the exit code."""

from kfuzz.cli.exit_codes import ExitCode, code_of_search
from kfuzz.core.event import Event, FindingReplayed, KernelFinished, RunFinished
from kfuzz.core.verdict import CHARGED, FAILING, ReplayOutcome, Verdict


class Outcome:
    """Folds a campaign's events to its exit code.

    Args:
        fail_on_known: whether findings marked known fail the run, too.
    """

    def __init__(self, *, fail_on_known: bool) -> None:
        self._failing = CHARGED if fail_on_known else FAILING
        self._fail_on_known = fail_on_known
        self._violated = self._interrupted = False
        self._error = self._lacking = False
        self._cases = 0

    def feed(self, event: Event) -> None:
        """Take the next event."""
        match event:
            case KernelFinished():
                states = {finding.state for finding in event.findings}
                self._violated |= bool(states & self._failing)
                self._cases += event.cases
                tallies = event.contracts.values()
                failed = any(t.verdict is Verdict.ERROR for t in tallies)
                self._error |= failed and not event.needs_gpu
                self._lacking |= event.needs_gpu
            case FindingReplayed():
                known = self._fail_on_known and event.excused
                self._violated |= event.fails or known
                self._error |= event.outcome is ReplayOutcome.ERROR
                self._cases += event.runs
            case RunFinished():
                self._interrupted = event.interrupted
            case _:
                pass

    def code(self) -> ExitCode:
        """Return the exit code."""
        return code_of_search(
            interrupted=self._interrupted,
            violated=self._violated,
            failed=self._error,
            ran=self._cases > 0,
            lacking=self._lacking,
        )
