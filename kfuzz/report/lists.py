"""Lists for people: the corpus, its problems, replayed findings, contracts."""

from collections import Counter
from collections.abc import Iterable, Sequence

from kfuzz.contracts.language import Contract
from kfuzz.corpus import Problem, Stored
from kfuzz.engine.config import ReplayOutcome, ReplayResult, Sanitized
from kfuzz.report.drawing import one_line, shown_path
from kfuzz.report.pages import title_of
from kfuzz.report.summary import table


def corpus_lines(entries: Iterable[Stored]) -> list[str]:
    """Return one line per finding below a header."""
    rows: list[Sequence[str]] = [("id", "state", "kernel", "elements", "message")]
    for entry in entries:
        f = entry.finding
        name, message = one_line(f.target.node_id), one_line(f.failure.message)
        rows.append((f.id, str(f.state), name, str(f.input_elements), message))
    return table(rows, numbers=(3,))


def problem_line(problem: Problem) -> str:
    """Return what is wrong with a place in the corpus."""
    return f"{problem.kind}: {one_line(problem.what)}"


def replay_lines(result: ReplayResult) -> list[str]:
    """Return the outcome of one finding, and how the environment differs."""
    name = result.finding.id if result.finding else shown_path(result.path)
    width = max(map(len, ReplayOutcome))
    runs = f" ({result.failures} of {result.runs} runs fail)" if result.runs else ""
    text = f"{result.outcome:<{width}}  {one_line(name)}{runs}"
    if result.message:
        text += f": {one_line(result.message)}"
    return [text, *(f"{' ' * width}  {one_line(d)}" for d in result.differences)]


def replay_total(results: Sequence[ReplayResult]) -> str:
    """Return how many findings came out how."""
    counts = Counter(result.outcome for result in results)
    texts = [f"{counts[o]} {o}" for o in ReplayOutcome if counts[o]]
    noun = "finding" if len(results) == 1 else "findings"
    return f"{len(results)} {noun} replayed: {', '.join(texts) or 'none'}"


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
    return table([(c.identifier, title_of(c)) for c in contracts])
