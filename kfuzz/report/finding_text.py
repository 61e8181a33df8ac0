"""A finding as a few lines of plain text, for reports that show text."""

from kfuzz.report.accesses import draw_accesses
from kfuzz.report.drawing import draw_case, draw_failure, one_line, plain
from kfuzz.report.gathered import Shown


def replay_line(shown: Shown, options: str) -> str:
    """Return the command that replays a finding.

    Args:
        shown: the finding.
        options: what the command needs to find the corpus.
    """
    return plain(f"kfuzz replay {shown.finding.id}{options}")


def finding_lines(shown: Shown, options: str) -> list[str]:
    """Return message, minimal input, what fails there and the replay line, the last.

    Args:
        shown: the finding.
        options: as for `replay_line`.
    """
    finding = shown.finding
    lines = [one_line(finding.failure.message), "minimal input:"]
    lines += [f"  {line}" for line in draw_case(finding.case)]
    lines += draw_failure(finding.failure)
    lines += draw_accesses(finding.failure.accesses, finding.case)
    if finding.explanation is not None and finding.explanation.features:
        lines.append(f"needs: {', '.join(finding.explanation.features)}")
    return [*map(plain, lines), f"replay: {replay_line(shown, options)}"]
