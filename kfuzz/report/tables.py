"""The end of a run as text: a table of kernels, then each one's contracts."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from kfuzz.core.event import (
    ContractTally,
    Event,
    Exited,
    FindingReplayed,
    FindingSaved,
    KernelFinished,
    Note,
    Notice,
    Progress,
    Refusal,
    RunFinished,
    RunStarted,
)
from kfuzz.core.finding import Change, Finding, Severity
from kfuzz.core.verdict import (
    ATTRIBUTED,
    EXACT,
    FAILING,
    GREATEST,
    UNBOUNDED,
    UNDECIDED,
    ErrorMap,
    Graded,
    State,
    Tried,
    Verdict,
    in_digits,
    ratio_of,
)
from kfuzz.report.promises import proof_summary, titled
from kfuzz.report.text import counted, one_line, table
from kfuzz.store.corpus import Corpus, Stored
from kfuzz.store.files import kept_runs

# The verdicts that are printed by themselves, in order, each with its word.
_NAMED: Final = {
    Verdict.VIOLATES: "violates",
    Verdict.ERROR: "error",
    Verdict.UNDER_SPECIFIED: "undecided",
}
_WIDTH: Final = max(map(len, _NAMED.values()))


def overview(kernels: Sequence[KernelFinished]) -> list[str]:
    """Return one line per kernel below a header."""
    header = ("kernel", "operator", "cases", "cases/s", "findings", "worst ratio")
    rows: list[Sequence[str]] = [header]
    for k in kernels:
        name, operator = one_line(k.kernel), one_line(k.operator)
        counts = (str(k.cases), f"{k.cases_per_s:.1f}", str(len(k.findings)))
        rows.append((name, operator, *counts, f"{k.worst_ratio:.2g}"))
    return table(rows, numbers=range(2, len(header)))


def kernel_lines(kernel: KernelFinished, *, verbose: bool = False) -> list[str]:
    """Return a kernel's verdicts, its rejections and its notes.

    Args:
        kernel: the kernel.
        verbose: whether contracts that hold, or do not apply, are named, too.
    """
    lines = [one_line(kernel.kernel)]
    unsettled = (f for f in kernel.findings if f.state not in ATTRIBUTED)
    open_ = {finding.signature.contract for finding in unsettled}
    if verbose:
        verdicts = verdict_lines(kernel.contracts, open_, tried=kernel.tried)
    else:
        verdicts = verdict_block(kernel, open_)
    if kernel.uncompared:
        lines.append(f"  {nothing_compared(kernel)}")
    lines += [f"  {line}" for line in verdicts]
    if kernel.searched:
        parts = searched_table(kernel) if verbose else [" · ".join(searched(kernel))]
        first = f"{'searched':<{_WIDTH}}"
        for part in parts:
            lines.append(f"  {first}  {part}")
            first = " " * _WIDTH
    if kernel.bursts:
        lines.append(
            f"  {kernel.screened} of {counted(kernel.cases, 'case')} ran in batches of "
            f"{counted(kernel.bursts, 'structure')}, with the checks that are always on"
        )
    return lines + [f"  {remark}" for remark in remarks(kernel)]


def verdict_block(
    kernel: KernelFinished, unsettled: Collection[str] = ()
) -> Iterator[str]:
    """Yield a line for each contract that is violated, open or wrong; count the rest.

    Args:
        kernel: the kernel.
        unsettled: the classes of which a failure was seen, and not confirmed.
    """
    tallies = kernel.contracts
    for verdict, word in _NAMED.items():
        for name, tally in tallies.items():
            if tally.verdict is not verdict:
                continue
            is_open = name in unsettled or verdict is not Verdict.UNDER_SPECIFIED
            if is_open or not kernel.uncompared:  # else all are, for one reason
                counts = _counts(tally, name in unsettled)
                if tally.decided and not is_open:
                    counts += "; there was no time to attribute a failure"
                yield f"{word:<{_WIDTH}}  {titled(name)}" + (
                    f" ({counts})" if counts else ""
                )
    held = sum(t.verdict is Verdict.CONFORMS for t in tallies.values())
    off = sum(t.verdict is Verdict.NOT_APPLICABLE for t in tallies.values())
    texts = []
    if held:
        few = barely(kernel.tried)
        texts.append(
            f"{counted(held, 'contract')} hold{'s' * (held == 1)}"
            + (f" ({few})" if few else "")
        )
    if off:
        of = "" if held else counted(off, "contract").removeprefix(f"{off}")
        texts.append(f"{off}{of} do{'es' * (off == 1)} not apply")
    if texts:
        yield f"{', '.join(texts)} (-v lists them)"


def verdict_lines(
    contracts: Mapping[str, ContractTally | Graded],
    unsettled: Collection[str] = (),
    *,
    tried: Tried | None = None,
) -> Iterator[str]:
    """Yield each verdict with its contracts, and how many cases decided them.

    Args:
        contracts: by their classes.
        unsettled: those of which a failure was seen, and not confirmed.
        tried: what the verdicts rest on, where it is known.
    """
    width = max(map(len, Verdict))
    for verdict in Verdict:
        chosen = {n: t for n, t in contracts.items() if t.verdict is verdict}
        if chosen:
            texts = (_tally(n, t, n in unsettled) for n, t in chosen.items())
            few = barely(tried) if verdict is Verdict.CONFORMS else ""
            head = f"{verdict} ({few})" if few else verdict
            yield f"{head:<{width}}  {', '.join(texts)}"


def nothing_compared(kernel: KernelFinished) -> str:
    """Return that no value of a kernel was compared, and why; "" if one was."""
    why = one_line(kernel.uncompared)
    return f"no value was compared: {why}" if why else ""


def barely(tried: Tried | None) -> str:
    """Return how little a kernel was tried, "" where that is enough or unknown."""
    if tried is None or tried.evidence == "enough":
        return ""
    of = counted(tried.structures, "structure")
    return f"barely tried: {counted(tried.cases, 'case')} of {of}"


# What was searched, by classes of sizes.


def size_of(tried: Tried) -> str:
    """Return the name of a class of sizes."""
    above = f"above {tried.above:,}"
    return above if tried.most is None else f"to {tried.most:,}"


def searched(kernel: KernelFinished) -> Iterator[str]:
    """Yield what was searched in each class of sizes, and what was not, and why."""
    unit, cases, structures = " elements", " cases", " structures"
    for number, tried in enumerate(kernel.searched):
        if not any(t.cases for t in kernel.searched[number:]):
            above = f" above {tried.above:,} elements" if tried.above else ""
            yield f"nothing{above}: {one_line(tried.lacks)}"
            break
        if tried.lacks:
            yield f"{size_of(tried)}{unit} none: {one_line(tried.lacks)}"
            continue
        counts = f"{tried.cases:,}{cases} of {tried.structures:,}{structures}"
        yield f"{size_of(tried)}{unit} {counts}"
        unit = cases = structures = ""
    yield from largest(kernel)


def largest(kernel: KernelFinished) -> list[str]:
    """Return a line of the largest size of each dimension that was judged, if any."""
    sizes = (f"{one_line(name)} {n:,}" for name, n in kernel.largest.items())
    return [f"largest {', '.join(sizes)}"] if kernel.largest else []


def searched_table(kernel: KernelFinished) -> list[str]:
    """Return what was searched as a table, a line for each class of sizes."""
    rows = [("elements", "cases", "structures", "seconds", "")]
    for t in kernel.searched:
        counts = f"{t.cases:,}", f"{t.structures:,}", f"{t.seconds:.1f}"
        rows.append((size_of(t), *counts, t.lacks))
    return [*table(rows, numbers=range(1, 4)), *largest(kernel)]


# Error against tolerance, on a scale of powers of ten, and how it was in earlier runs.

LEAST_POWER: Final = -4
"""Smaller errors are drawn as if they were of this power of ten."""
GREATEST_POWER: Final = 6
"""And greater ones, up to infinity, of this one."""


def ratio_text(ratio: float) -> str:
    """Return an |error| / tolerance in two digits."""
    if not math.isfinite(ratio):
        return "no number"
    return f"{ratio:.2g}" if ratio < 100 or ratio >= 1e4 else f"{ratio:.0f}"


def power_of(ratio: float) -> float:
    """Return the power of ten that an |error| / tolerance is drawn at."""
    power = math.log10(ratio) if ratio > 0 else LEAST_POWER
    return min(max(power, LEAST_POWER), GREATEST_POWER)


def bar_lines(errors: Sequence[Tried]) -> list[str]:
    """Return a line for each dtype and class of sizes, with a bar to the worst error.

    A bar that crosses the upright line is of a case that fails.
    """
    rows = [("dtype", "elements", "cases", "worst", f"{'tolerance |':>{_TO_ONE + 1}}")]
    for t in errors:
        length = round((power_of(t.worst) - LEAST_POWER) * _PER_POWER)
        below, beyond = min(length, _TO_ONE), length - _TO_ONE
        bar = "#" * below + " " * (_TO_ONE - below) + "|"
        if t.worst > 1:
            bar += "#" * max(beyond, 1)
        worst = ratio_text(t.worst)
        rows.append((t.dtype, size_of(t), f"{t.cases:,}", worst, bar))
    return table(rows, numbers=(2, 3)) if errors else []


# Letters of a bar for a power of ten, and up to the tolerance.
_PER_POWER: Final = 2
_TO_ONE: Final = -LEAST_POWER * _PER_POWER


class Night(NamedTuple):
    """What one run of a corpus came to for a kernel."""

    when: str
    errors: tuple[Tried, ...]
    open: int
    mended: int

    @property
    def cases(self) -> int:
        """Cases that decided a contract."""
        return sum(t.cases for t in self.errors)

    @property
    def worst(self) -> float:
        """The greatest |error| / tolerance that was seen."""
        return max((t.worst for t in self.errors), default=0.0)


def nights(corpus: Path) -> dict[str, list[Night]]:
    """Return the last runs of each kernel, by node id, the latest last."""
    if not (runs := kept_runs(corpus)):
        return {}
    lives: dict[str, list[tuple[Change, ...]]] = {}
    for entry in Corpus(corpus).entries():
        if isinstance(entry, Stored):
            node = entry.finding.target.node_id
            lives.setdefault(node, []).append(entry.finding.history)
    made: dict[str, list[Night]] = {}
    # A run's findings are there before the next one begins.
    ends = [when for when, _ in runs[1:]] + ["~"]
    for (when, seen), end in zip(runs, ends, strict=True):
        for node, errors in seen.items():
            states = [
                [c.state for c in life if c.when < end] for life in lives.get(node, ())
            ]
            fixed = [s[-1] is State.FIXED for s in states if s]
            night = Night(when, errors, fixed.count(False), fixed.count(True))
            made.setdefault(node, []).append(night)
    return made


# What an output holds around its worst element, one letter for each.

# The greatest |error| / tolerance of each level that has one, and its letter.
_LEVELS: Final = (
    (1 / 16, ","), (1 / 4, ":"), (1, ";"), (4, "x"), (64, "X"), (math.inf, "#")
)  # fmt: skip
_WITHOUT_RATIO: Final = {UNDECIDED: "?", EXACT: ".", UNBOUNDED: "!"}

MISSES: Final = "xX#!"
"""Letters of errors that are none within the tolerance."""

ERROR_LETTERS: Final = {
    "?": "not decided",
    ".": "exact",
    ",": "up to 1/16 of the tolerance",
    ":": "up to 1/4",
    ";": "up to 1: within the tolerance",
    "x": "misses by up to 4 times the tolerance",
    "X": "misses by up to 64 times",
    "#": "misses by more",
    "!": "misses, without a number",
}
"""What each letter of an error means."""


def error_letters(codes: bytes, columns: int) -> list[str]:
    """Return the errors of the rows of a matrix, a letter for each code."""
    text = "".join(map(_error_letter, codes))
    return [text[i : i + columns] for i in range(0, len(text), columns)]


def _error_letter(code: int) -> str:
    if code in _WITHOUT_RATIO:
        return _WITHOUT_RATIO[code]
    ratio = ratio_of(code)
    return next(letter for most, letter in _LEVELS if ratio <= most)


def panels(errors: ErrorMap) -> dict[str, list[str]]:
    """Return what is kept around the worst element: actual, expected and error.

    Numbers are letters from 0, the least expected one, to 9, the greatest, "<" and ">"
    beyond them; N is NaN, + and - are infinities. {} where nothing is kept.
    """
    width = len(errors.around[1])
    if not width:
        return {}
    least, most = scale(errors)
    step = (most - least) / 10 or 1.0

    def letter(value: float) -> str:
        if not math.isfinite(value):
            return "N" if math.isnan(value) else "+" if value > 0 else "-"
        if not least <= value <= most:
            return "<" if value < least else ">"
        return str(min(int((value - least) / step), 9))

    made = {}
    for name, values in (("actual", errors.actual), ("expected", errors.expected)):
        text = "".join(map(letter, values))
        made[name] = [text[i : i + width] for i in range(0, len(text), width)]
    return made | {"error": error_letters(errors.near_codes, width)}


# Elements along a side of which people read the numbers.
_NUMBERED: Final = (8, 4)


def numbers(errors: ErrorMap) -> dict[str, list[list[str]]]:
    """Return the same in numbers; {} where these are too many to read."""
    sides = errors.around
    if not all(0 < len(s) <= n for s, n in zip(sides, _NUMBERED, strict=True)):
        return {}
    both = zip(errors.actual, errors.expected, strict=True)
    pairs = [in_digits(6, *pair) for pair in both]
    texts = {
        "actual": [actual for actual, _ in pairs],
        "expected": [expected for _, expected in pairs],
        "error": [code_text(code) for code in errors.near_codes],
    }
    wide = len(sides[1])
    return {
        name: [every[i : i + wide] for i in range(0, len(every), wide)]
        for name, every in texts.items()
    }


def code_text(code: int) -> str:
    """Return an error in units of the tolerance, as roughly as the code has it."""
    if code in _WITHOUT_RATIO:
        return {UNDECIDED: "undecided", EXACT: "0", UNBOUNDED: "no number"}[code]
    return ("≥ " if code == GREATEST else "") + f"{ratio_of(code):.1g}"


def scale(errors: ErrorMap) -> tuple[float, float]:
    """Return the least and greatest number that is drawn as such: of the expected ones.

    Where these are all the same, of the actual ones as well.
    """
    finite = list(filter(math.isfinite, errors.expected))
    if len(set(finite)) < 2:
        finite += filter(math.isfinite, errors.actual)
    return min(finite, default=0.0), max(finite, default=0.0)


def place_in(errors: ErrorMap) -> tuple[int, int]:
    """Return the row and column of the worst element among those that are kept."""
    rows, columns = errors.around
    return rows.index(errors.worst[0]), columns.index(errors.worst[1])


def remarks(kernel: KernelFinished) -> list[str]:
    """Return what is proved of a kernel, its refusals and notes, one line each."""
    proved = [] if kernel.proof is None else [f"proof: {proof_summary(kernel.proof)}"]
    return [*proved, *map(_refusal, kernel.refusals), *map(_note, kernel.notes)]


def _tally(name: str, tally: ContractTally | Graded, is_open: bool) -> str:
    if tally.verdict is Verdict.NOT_APPLICABLE:
        return name
    return f"{name} ({_counts(tally, is_open) or '0 decided'})"


def _counts(tally: ContractTally | Graded, is_open: bool) -> str:
    """Return how many failed of how many decided, "" where nothing was counted."""
    failed = tally.failed if isinstance(tally, ContractTally) else 0
    texts = []
    if failed:
        texts.append(f"{failed} of {tally.decided} decided cases failed")
    elif tally.decided:
        texts.append(f"{tally.decided} decided")
    if tally.undecided:
        texts.append(f"{tally.undecided} undecided")
    text = ", ".join(texts)
    if is_open and tally.verdict is Verdict.UNDER_SPECIFIED:
        text += "; a failure was not confirmed"
    return text.removeprefix("; ")


def _refusal(refusal: Refusal) -> str:
    head = "rejects" if refusal.example else "limit:"
    text = f"{head} {one_line(refusal.reason)} ({counted(refusal.cases, 'case')})"
    if refusal.remedy:
        text += f"; to make it explicit, declare {one_line(refusal.remedy)}"
    if refusal.example:
        text += f"; it raised {one_line(refusal.example)}"
    return text


def _note(note: Note) -> str:
    return f"note: {one_line(note.note)} ({counted(note.cases, 'case')})"


# What is known of a run: one fold over its events, for all reports made at its end.

# Which findings come first: those that fail a run, then those that may.
_ORDER: Final = (
    State.REGRESSED, State.CONFIRMED, State.WITNESSED, State.NEW, State.FLAKY,
    State.UNREPRODUCED, State.KNOWN, State.FIXED,
)  # fmt: skip


@dataclass(frozen=True)
class Shown:
    """A finding as the reports show it.

    Attributes:
        kernel: node id.
        finding: in its last form.
        path: its folder, "" where it is unknown.
        is_new: False if the corpus already held it.
        whole: whether the run came to its end with it: reduced and explained.
        outside: what `--target` takes for its kernel, where that lies outside the
            project; "" where it does not, or this is unknown.
    """

    kernel: str
    finding: Finding
    path: str
    is_new: bool = True
    whole: bool = True
    outside: str = ""

    @property
    def fails(self) -> bool:
        """Whether it fails a run by itself."""
        return self.finding.state in FAILING

    @property
    def known(self) -> bool:
        """Whether people marked it as known."""
        return self.finding.state is State.KNOWN

    @property
    def reason(self) -> str:
        """Why it is in its state: as its mark says, with its link, or its history."""
        mark = self.finding.mark
        if mark is not None:
            return " ".join(filter(None, (mark.reason, mark.link)))
        notes = [c.note for c in self.finding.history if c.state is self.finding.state]
        return notes[-1] if notes else ""


@dataclass
class Gathered:
    """Folds events to what is known so far; any beginning of a stream will do.

    Attributes:
        started: how the run began; None before, and for a corpus.
        finished: how it ended; None if it did not come to its end.
        exited: how the command ended, where that is known.
        timeline: counters over time, at most `MAX_POINTS`.
        replayed: what came of the findings that were stored before.
        notices: what a person should know.
        kernels: the result for each kernel that came to its end, by node id.
        corpus: where earlier runs and findings are kept; None to leave them out.
    """

    started: RunStarted | None = None
    finished: RunFinished | None = None
    exited: Exited | None = None
    progress: Progress | None = None
    replayed: list[FindingReplayed] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    kernels: dict[str, KernelFinished] = field(default_factory=dict)
    corpus: Path | None = None
    _shown: dict[tuple[str, str], Shown] = field(default_factory=dict)
    _pending: dict[str, Shown] = field(default_factory=dict)
    _outside: dict[str, str] = field(default_factory=dict)

    def feed(self, event: Event) -> None:
        """Take the next event."""
        match event:
            case RunStarted():
                self.started, self.finished, self.exited = event, None, None
                self.progress = None
                self._outside |= event.outside
            case Progress():
                self.progress = event
            case FindingReplayed():
                self.replayed.append(event)
            case Notice():
                self.notices.append(event)
            case FindingSaved():
                self._save(event)
            case KernelFinished():
                self._finish(event)
            case RunFinished():
                self.finished = event
            case Exited():
                self.exited = event

    @property
    def findings(self) -> list[Shown]:
        """Every finding, those that fail a run first, then the gravest, by kernel."""
        every = [*self._shown.values(), *self._pending.values()]

        def place(shown: Shown) -> tuple[int, Severity, str, str, str]:
            finding = shown.finding
            rank = _ORDER.index(finding.state) if finding.state in _ORDER else 0
            contract = finding.signature.contract
            return rank, finding.severity, shown.kernel, contract, finding.id

        return sorted(every, key=place)

    def nodes(self) -> list[str]:
        """Return the node ids of all kernels, in the order in which they came."""
        names = list(self.started.kernels) if self.started else []
        names += list(self.kernels)
        names += [shown.kernel for shown in self.findings]
        return list(dict.fromkeys(names))

    @property
    def seed(self) -> int | None:
        """The run's seed."""
        known = self.finished or self.started
        return known.seed if known else None

    @property
    def device(self) -> str:
        """The backend, "" where there was no run."""
        known = self.finished or self.started
        return known.device if known else ""

    @property
    def elapsed_s(self) -> float:
        """Seconds that the run took, as far as is known."""
        if self.finished:
            return self.finished.elapsed_s
        return self.progress.elapsed_s if self.progress else 0.0

    @property
    def spent(self) -> dict[str, float]:
        """Seconds of these that were not searched, by what they went to."""
        names = ("startup_s", "import_s", "reducing_s")
        return {name: getattr(self.finished, name, 0.0) for name in names}

    @property
    def cases(self) -> int:
        """Cases run, as far as is known."""
        counted = sum(k.cases for k in self.kernels.values())
        return max(counted, self.progress.cases if self.progress else 0)

    @property
    def ending(self) -> str:
        """How the run ended in words, "" if it came to its end."""
        if self.exited and self.exited.error:
            return f"ended by: {self.exited.error}"
        if self.finished and self.finished.interrupted:
            return "interrupted; everything found by then is saved"
        if self.started and not self.finished:
            return "cut off before its end"
        return ""

    def _save(self, event: FindingSaved) -> None:
        whole = event.stage == "done"
        shown = Shown(
            event.kernel, event.finding, event.path, event.is_new, whole,
            self._outside.get(event.kernel, ""),
        )  # fmt: skip
        if not whole:
            self._pending[event.kernel] = shown
            return
        self._pending.pop(event.kernel, None)
        key = event.kernel, event.finding.id
        # Reported once more, by another run or a corpus, it is as new as it was.
        is_new = event.is_new or (key in self._shown and self._shown[key].is_new)
        self._shown[key] = replace(shown, is_new=is_new)
        self._shown.pop((event.kernel, event.merged), None)

    def _finish(self, event: KernelFinished) -> None:
        self.kernels[event.kernel] = event
        if event.findings:
            self._pending.pop(event.kernel, None)
        for finding in event.findings:
            key = event.kernel, finding.id
            old = self._shown.get(key)
            is_new = old is None or old.is_new
            path = event.paths.get(finding.id, old.path if old else "")
            outside = self._outside.get(event.kernel, "")
            self._shown[key] = Shown(
                event.kernel, finding, path, is_new, outside=outside
            )


def uncompared(kernels: int) -> str:
    """Return of how many kernels no value was compared, in words."""
    return f"no value compared for {kernels} kernel{'s' if kernels > 1 else ''}"


def headline(run: Gathered) -> list[tuple[Verdict | State, str]]:
    """Return what was found: what it comes to, and how often, in words."""
    counts = Counter(map(_comes_to, run.findings))
    more = "s" if counts[Verdict.VIOLATES] > 1 else ""
    words: dict[Verdict | State, str] = {
        Verdict.VIOLATES: f"violation{more}",
        State.KNOWN: "known",
        Verdict.UNDER_SPECIFIED: "not confirmed",
        Verdict.CONFORMS: "fixed",
    }
    parts = [(k, f"{counts[k]} {text}") for k, text in words.items() if counts[k]]
    idle = sum(bool(kernel.uncompared) for kernel in run.kernels.values())
    if not parts:
        verdict = Verdict.UNDER_SPECIFIED if idle else Verdict.CONFORMS
        parts.append((verdict, "no finding"))
    if idle:
        parts.append((Verdict.UNDER_SPECIFIED, uncompared(idle)))
    return parts


def _comes_to(shown: Shown) -> Verdict | State:
    if shown.fails:
        return Verdict.VIOLATES
    if shown.known:
        return State.KNOWN
    is_fixed = shown.finding.state is State.FIXED
    return Verdict.CONFORMS if is_fixed else Verdict.UNDER_SPECIFIED


_Contracts = dict[str, tuple[ContractTally | None, list[Shown]]]


def matrix(run: Gathered) -> Iterator[tuple[str, KernelFinished | None, _Contracts]]:
    """Yield each kernel with, by contract class, its tally and its findings."""
    findings = run.findings
    for node in run.nodes():
        kernel = run.kernels.get(node)
        tallies = dict(kernel.contracts) if kernel else {}
        own = [shown for shown in findings if shown.kernel == node]
        names = [*tallies, *(shown.finding.signature.contract for shown in own)]
        yield (
            node,
            kernel,
            {
                name: (
                    tallies.get(name),
                    [s for s in own if s.finding.signature.contract == name],
                )
                for name in names
            },
        )


def is_known_only(verdict: Verdict, findings: Iterable[Shown]) -> bool:
    """Whether a contract is violated in known ways alone."""
    shown = list(findings)
    known = any(s.known for s in shown) and not any(s.fails for s in shown)
    return verdict is Verdict.VIOLATES and known
