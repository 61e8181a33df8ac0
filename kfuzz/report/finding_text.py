"""A finding as a few lines of plain text, for reports that show text."""

import re
from shlex import quote
from typing import Final

from kfuzz.core.finding import Finding
from kfuzz.core.verdict import Kind
from kfuzz.report.accesses import draw_accesses
from kfuzz.report.drawing import draw_case, draw_failure, one_line, plain
from kfuzz.report.gathered import Shown

_OF_GPUS: Final = re.compile(r"cuda|hip\b|rocm|gpu|device", re.IGNORECASE)
_WITHOUT_GPU: Final = {"cpu": "on the CPU", "interpret": "in Triton's interpreter"}


def gpu_hint(finding: Finding) -> str:
    """Return what is to be tried where a kernel may have refused for want of a GPU.

    "" where it ran on one, and where neither what it raised nor the line that raised
    it speaks of GPUs.
    """
    where, failure = _WITHOUT_GPU.get(finding.device, ""), finding.failure
    if failure.kind is not Kind.RAISES or not where:
        return ""
    # Below a line of code Python may mark a part of it.
    trace = [t for t in failure.trace.splitlines() if t.strip(" ^~")]
    if not any(map(_OF_GPUS.search, [failure.message, *trace[-2:]])):
        return ""
    return f"it ran {where}; if it needs a GPU: --device cuda"


def target_option(finding: Finding, outside: str = "") -> str:
    """Return what a printed command needs to find the kernel of a finding.

    Args:
        finding: the finding.
        outside: what `--target` takes for the kernel where the finding does not say
            where that lives; "" where it does, or nobody knows: then a person has to.
    """
    target = finding.target
    if not outside and (target.file or target.module):
        return ""
    return f" --target {quote(outside or f'FILE.py::{target.name}')}"


def replay_line(shown: Shown, options: str) -> str:
    """Return the command that replays a finding.

    Args:
        shown: the finding.
        options: what the command needs to find the corpus.
    """
    target = target_option(shown.finding, shown.outside)
    return plain(f"kfuzz replay {shown.finding.id}{target}{options}")


def finding_lines(shown: Shown, options: str) -> list[str]:
    """Return message, minimal input, what fails there and the replay line, the last.

    Args:
        shown: the finding.
        options: as for `replay_line`.
    """
    finding = shown.finding
    lines = [one_line(finding.failure.message), "minimal input:"]
    lines += [f"  {line}" for line in draw_case(finding.case)]
    lines += [hint] if (hint := gpu_hint(finding)) else []
    lines += draw_failure(finding.failure)
    lines += draw_accesses(finding.failure.accesses, finding.case)
    if finding.explanation is not None and finding.explanation.features:
        lines.append(f"needs: {', '.join(finding.explanation.features)}")
    return [*map(plain, lines), f"replay: {replay_line(shown, options)}"]
