"""Lists for people: replayed findings, what sanitizers said, contracts."""

from collections import Counter
from collections.abc import Iterable, Sequence

from kfuzz.contracts.language import Contract
from kfuzz.core.event import FindingReplayed
from kfuzz.core.verdict import ReplayOutcome, State
from kfuzz.engine.config import Sanitized
from kfuzz.report.layout import table
from kfuzz.report.promises import promise
from kfuzz.report.text import counted, one_line, shown_path


def replay_lines(result: FindingReplayed, *, options: str = "") -> list[str]:
    """Return the outcome of one finding, how the environment differs, what is next.

    Args:
        result: what came of it.
        options: what the command printed needs to find the corpus.
    """
    name = result.id or shown_path(result.path)
    width = max(map(len, ReplayOutcome))
    runs = f" ({result.failures} of {result.runs} runs fail)" if result.runs else ""
    text = f"{result.outcome:<{width}}  {one_line(name)}{runs}"
    if result.state is State.KNOWN:
        text += f": known, {one_line(result.reason)}" if result.reason else ": known"
    if result.excused:
        return [text]
    if result.message:
        text += f": {one_line(result.message)}"
    if result.outcome is ReplayOutcome.FIXED and result.by_chance:
        text += "; chance decides if it shows"
    lines = [text]
    if result.differences:
        lines.append(f"{' ' * width}  the environment differs from where it was found:")
    lines += [f"{' ' * width}    {one_line(d)}" for d in result.differences]
    return lines + _next(result, width, options)


def _next(result: FindingReplayed, width: int, options: str) -> list[str]:
    if not result.seems_fixed:
        return []
    command = f"kfuzz corpus mark {result.id} fixed{options}"
    return [f"{' ' * width}  seems fixed; if it is: {command}"]


def replay_total(results: Sequence[FindingReplayed]) -> str:
    """Return how many findings came out how."""
    counts = Counter(result.outcome for result in results)
    texts = [f"{counts[o]} {o}" for o in ReplayOutcome if counts[o]]
    if known := sum(result.excused for result in results):
        texts.append(f"{known} of them known")
    if not results:
        return "no finding replayed"
    return f"{counted(len(results), 'finding')} replayed: {', '.join(texts)}"


def sanitized_lines(result: Sanitized) -> list[str]:
    """Return what a sanitizer said of one finding, and where its report lies."""
    name = result.finding.id if result.finding else shown_path(result.path)
    if result.report is None:
        return [f"ERROR  {one_line(name)}: {one_line(result.problem)}"]
    first, *rest = result.report.lines
    lines = [f"{one_line(name)}: {one_line(first)}"]
    lines += [f"  {one_line(line)}" for line in rest]
    if result.raised:
        lines.append(f"  the kernel raised {one_line(result.raised)}")
    if result.file is not None:
        lines.append(f"  report: {shown_path(result.file)}")
    return lines


def contract_lines(contracts: Iterable[Contract]) -> list[str]:
    """Return one line per contract: identifier and promise."""
    return table([(c.identifier, promise(c)) for c in contracts])
