"""What a run knows of one kernel: verdicts, rejections, what was compared."""

import math
import re
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Final

from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.reading import GIVEN, RANK, WITHOUT
from kfuzz.core.budget import Burst, Screened
from kfuzz.core.event import ContractTally, Note, Refusal
from kfuzz.core.finding import Finding
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import (
    ATTRIBUTED,
    CaseReport,
    Compared,
    Kind,
    State,
    Tried,
    Verdict,
    output_of,
)
from kfuzz.engine.workers.runner import lost_memory
from kfuzz.evaluation.drawing import BOUNDS

# What a kernel declines: which aspect of the cases it raised on may be why.

_REMEDIES: Final = {
    "non-contiguous input": 'layouts="contiguous"',
    "non-contiguous destination": 'layouts="contiguous"',
    "storage offset": 'layouts="contiguous" (or "inner_contiguous")',
    "zero-size input": 'shape_class="N >= 1", of each dimension N that it needs',
    "dim other than the last": "dims={-1}",
    "non-finite input": 'nonfinite="raise" (or "undefined")',
}
_DTYPE: Final = "dtype "
# Where every aspect, and every two of them, were taken as well.
_OPEN: Final = "some cases beyond the core domain"
# What differs between two messages of one cause: sizes, addresses.
_NUMBER: Final = re.compile(r"0x[0-9a-f]+|\d+")

_Aspects = tuple[str, ...]


@dataclass
class Refusals:
    """The refused cases of one kernel, and what it took."""

    _taken: set[frozenset[str]] = field(default_factory=set)
    _in_core: set[str] = field(default_factory=set)
    _refused: Counter[tuple[str, str, _Aspects]] = field(default_factory=Counter)
    _limits: dict[str, str] = field(default_factory=dict)
    _examples: dict[str, str] = field(default_factory=dict)

    def take(self, report: CaseReport) -> None:
        """Count what one case teaches."""
        failure = report.failure
        if report.limit or report.refusal is not None:
            cause = _NUMBER.sub("", report.example)
            self._examples.setdefault(cause, report.example)
            reason, aspects = report.refusal or "", report.aspects
            if report.limit:
                (reason, self._limits[report.limit[0]]), aspects = report.limit, ()
            self._refused[reason, cause, aspects] += 1
        if report.refusal is not None:
            return
        if failure is not None and failure.kind is Kind.RAISES:
            self._in_core.add(_NUMBER.sub("", failure.message))
        else:
            self._taken.add(frozenset(report.aspects))

    def told(self, dtypes: Sequence[str]) -> tuple[Refusal, ...]:
        """Return what the kernel declined, each with its remedy.

        Nothing of what it raises on the core domain alike: that is a violation, and
        whatever else the case has is not why.
        """
        found: Counter[str] = Counter()
        causes: dict[str, str] = {}
        by_cause: dict[str, Counter[_Aspects]] = {}
        for (reason, cause, aspects), cases in self._refused.items():
            if cause and any(m.endswith(f": {cause}") for m in self._in_core):
                continue
            if aspects:
                by_cause.setdefault(cause, Counter())[aspects] += cases
            else:  # declined for what is no aspect of the case
                found[reason] += cases
                causes.setdefault(reason, cause)
        for cause, refused in by_cause.items():
            for reason, cases in self._named(refused):
                found[reason] += cases
                causes.setdefault(reason, cause)
        kept = [d for d in dtypes if f"{_DTYPE}{d}" not in found]
        return tuple(
            Refusal(
                reason, n, self._remedy(reason, kept), self._examples[causes[reason]]
            )
            for reason, n in sorted(found.items())
        )

    def _named(self, refused: Counter[_Aspects]) -> Iterator[tuple[str, int]]:
        """Yield what explains cases that raised alike, and how many it does.

        An aspect, or two together, that no case taken has: first what most of the
        cases have.
        """
        left = Counter(refused)
        taken = {some for aspects in self._taken for some in _up_to_two(aspects)}
        while left:
            found: Counter[_Aspects] = Counter()
            for aspects, cases in left.items():
                fresh = [some for some in _up_to_two(aspects) if some not in taken]
                found.update(dict.fromkeys(fresh, cases))
            if not found:
                yield _OPEN, left.total()
                return
            most = max(found, key=lambda some: (found[some], -len(some)))
            yield " with ".join(most), found[most]
            left = Counter({a: n for a, n in left.items() if not {*most} <= {*a}})

    def _remedy(self, reason: str, kept: Sequence[str]) -> str:
        """Return the declaration that makes a refusal explicit, "" if none does."""
        if reason in self._limits:
            return self._limits[reason]
        if " with " in reason:
            return ""
        if reason.startswith(_DTYPE):
            return f"dtypes={(*kept,)!r}" if kept else ""
        if reason.startswith(RANK):
            return f"ranks= without {reason.removeprefix(RANK).split()[0]}"
        if reason.startswith(WITHOUT):
            name = reason.removeprefix(WITHOUT)
            return f"no None, as default or annotation, for the parameter {name}"
        if reason.startswith(GIVEN):
            name = reason.removeprefix(GIVEN)
            return (
                f"no {name}: leave the parameter out of the signature, or of the "
                "binding"
            )
        return _REMEDIES.get(reason, "")


def _up_to_two(aspects: Collection[str]) -> Iterator[tuple[str, ...]]:
    for few in (1, 2):
        yield from combinations(sorted(aspects), few)


# What a run knows of one kernel: counts per contract, refusals, notices.

# The classes of which a case that decides them has values compared.
_COMPARING: Final = frozenset(c.id for c in ATTRIBUTION if c.compares)
# Those that compare numbers, wherever they are in force; and those that a run which
# asks for memory alone can do without.
_VALUES: Final = frozenset({"K-VAL-01", "K-GRD-01"})
_BESIDE: Final = frozenset({"K-MEM-02"})
DIAGNOSABLE: Final = frozenset(c.id for c in ATTRIBUTION if c.provisional)
"""Classes that further probes may tell apart."""
# Cases in which memory ran out, after which that is what the kernel does: it takes
# seconds each time.
_OUT_OF_MEMORY: Final = 3
_DECISIVE: Final = frozenset({Verdict.CONFORMS, Verdict.VIOLATES})


@dataclass
class Record:
    """Counts over the cases of one kernel.

    Attributes:
        classes: ids of the contract classes that bind the kernel and are in force.
        dtypes: the dtypes that it declares.
        cases: cases judged, and items of batches that passed.
        prefiltered: of these the items of batches.
        batches: batches prefiltered.
        errors: cases that kfuzz or the machine could not judge.
        worst: greatest |error| / tolerance of a case without failure.
        largest: largest size of each dimension in cases that decided a contract.
        baselines: by kind, on how many cases one was tried and on how many rejected.
        notices: what a person should know, and whether it was reported.
        lock: held while what workers of the kernel share is changed.
    """

    classes: frozenset[str]
    dtypes: tuple[str, ...]
    cases: int = 0
    prefiltered: int = 0
    batches: int = 0
    errors: int = 0
    worst: float = 0.0
    largest: dict[str, int] = field(default_factory=dict)
    baselines: dict[str, tuple[int, int]] = field(default_factory=dict)
    notices: dict[str, bool] = field(default_factory=dict)
    _kept: Counter[str] = field(default_factory=Counter)
    _broken: Counter[str] = field(default_factory=Counter)
    _undecided: Counter[str] = field(default_factory=Counter)
    _refusals: Refusals = field(default_factory=Refusals)
    _notes: Counter[str] = field(default_factory=Counter)
    _compared: dict[str, bool] = field(default_factory=dict)
    _judged: set[str] = field(default_factory=set)
    _unsupported: set[str] = field(default_factory=set)
    _lacks_gpu: bool = False
    _memory: int = 0
    _on_elements: bool = False
    # By the elements of the largest tensor, the dtype and the structure: how often it
    # was drawn and decided a contract, the cases that did, seconds, and the greatest
    # |error| / tolerance.
    _structures: dict[tuple[int, str, int], tuple[int, int, float, float]] = field(
        default_factory=dict
    )
    # Cases without a compared value by what became of them, each with an example.
    _idle: Counter[str] = field(default_factory=Counter)
    _examples: dict[str, str] = field(default_factory=dict)
    _failing: Counter[tuple[str, Kind, str, str]] = field(default_factory=Counter)
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def useless_dtypes(self) -> frozenset[str]:
        """The dtypes that this backend could never judge."""
        return frozenset(self._unsupported - self._judged)

    @property
    def needs_gpu(self) -> bool:
        """Whether calls need a GPU that is not there, and none on elements was judged.

        What returns at once where there are no elements says nothing of the kernel.
        """
        return self._lacks_gpu and not self._on_elements

    @property
    def hoards(self) -> bool:
        """Whether memory runs out so often that more cases would only take time."""
        return self._memory >= _OUT_OF_MEMORY and 3 * self._memory >= self.cases

    def take(self, case: Case, report: CaseReport, seconds: float = 0.0) -> None:
        """Count what one case teaches, and the seconds that it took."""
        self.cases += 1
        decides = report.refusal is None and not _DECISIVE.isdisjoint(
            report.verdicts.values()
        )
        failure, ratio = report.failure, min(report.ratio, 1.0)
        if failure is not None:
            said = failure.ratio or 0.0
            if failure.kind is Kind.VALUE:  # it has none where one value is allowed
                said = max(said, report.ratio)
            ratio = said if said > 1.0 else math.inf
        self._count(case, int(decides), seconds, ratio)
        dtype = case.data.dtype
        for kind, rejected in report.baselines.items():
            tried, times = self.baselines.get(kind, (0, 0))
            self.baselines[kind] = tried + 1, times + rejected
        if report.error is not None:
            self.errors += 1
            self._memory += lost_memory(report)
            self.notice(f"could not be judged: {report.error}")
        if report.unsupported is not None:
            if case.largest <= BOUNDS[2]:  # a larger one says nothing of its data type
                self._unsupported.add(dtype)
            self._lacks_gpu |= report.needs_gpu
            self.notice(f"not judged on this backend: {report.unsupported}")
        else:
            self._judged.add(dtype)
            decided = report.verdicts and report.refusal is None
            self._on_elements |= bool(decided) and _has_elements(case)
        self._refusals.take(report)
        if _COMPARING.isdisjoint(report.verdicts):
            self._count_idle(report)
        for note in report.notes:
            self.note(note)
        for why in report.alone:
            self.note(f"programs ran one after the other: {why}")
        self._take_compared(report.compared)
        for name, verdict in report.verdicts.items():
            counts = {Verdict.CONFORMS: self._kept, Verdict.VIOLATES: self._broken}.get(
                verdict, self._undecided
            )
            counts[name] += 1
        if failure is None:
            self.worst = max(self.worst, ratio)
        else:
            self._failing[failure.signature("").symptom] += 1

    def _count(self, case: Case, decided: int, seconds: float, ratio: float) -> None:
        """Count a case, or the items of a batch, of which so many decided."""
        key = case.largest, case.data.dtype, hash(case.structure)
        drawn, cases, spent, worst = self._structures.get(key, (0, 0, 0.0, 0.0))
        self._structures[key] = (
            drawn + bool(decided), cases + decided, spent + seconds, max(worst, ratio),
        )  # fmt: skip
        for name, n in case.dims.items() if decided else ():
            self.largest[name] = max(n, self.largest.get(name, 0))

    def _count_idle(self, report: CaseReport) -> None:
        """Count a case in which no value was compared."""
        failed = report.failure.message if report.failure else None
        rejected = report.refusal and (report.example or report.refusal)
        every = (
            ("an error ended", report.error),
            ("this backend cannot judge", report.unsupported),
            ("the oracle raises on", report.oracle_raised),
            ("the kernel rejected", rejected),
            ("the kernel failed on", failed),
            ("there is nothing to compare in", "-"),
        )
        what, example = next((what, text) for what, text in every if text)
        self._idle[what] += 1
        self._examples.setdefault(what, example.removeprefix("-"))

    def compared(self) -> Compared:
        """Return what was compared with the oracle's, whatever was found."""
        asked = self.classes & _COMPARING - _BESIDE
        wanted = self.classes & _VALUES or asked or self.classes
        kept = any(self._kept[c] or self._broken[c] for c in wanted)
        return Compared(dict(self._compared) if asked else {}, kept)

    def uncompared(self, findings: list[Finding], ending: str) -> str:
        """Return why no value was compared with the oracle's, "" if one was.

        Contracts that the run leaves out are not missed, and a kernel that violates
        one needs no other.

        Args:
            findings: the kernel's.
            ending: why there was no case, if there was none.
        """
        if any(f.state in ATTRIBUTED for f in findings):
            return ""
        compared = self.compared()
        why = [note for note in self._notes if "undecided" in note][:1]
        if compared.lacking:
            return "; ".join([compared.lacking, *why])
        if compared.decided:
            return ""
        if not self.cases:
            return ending
        idle, examples = Counter(self._idle), dict(self._examples)
        if (undecided := self.cases - idle.total()) > 0:
            idle["the error model decides nothing in"] = undecided
            examples["the error model decides nothing in"] = "".join(why)
        texts = []
        for what, n in idle.most_common():
            which = "every case" if n >= self.cases else f"{n} of {self.cases} cases"
            example = examples[what]
            texts.append(f"{what} {which}" + (f": {example}" if example else ""))
        return "; ".join(texts)

    def take_batch(self, batch: Burst, made: Screened, seconds: float = 0.0) -> None:
        """Count what the items of a batch teach that passed; suspects are cases."""
        if made.unsupported or made.error or made.lost:
            return
        case = batch.case
        self.cases += made.passed
        self.prefiltered += made.passed
        self.batches += 1
        self._judged.add(case.data.dtype)
        self._on_elements |= made.passed > 0 and _has_elements(case)
        decided = max(made.conforms.values(), default=0)
        ratio = min(made.ratio, 1.0)
        self._count(case, decided, seconds, ratio)
        self._kept.update(made.conforms)
        self._undecided.update(made.undecided)
        self.worst = max(self.worst, ratio)
        self._take_compared(made.compared)

    def _take_compared(self, compared: Mapping[str, bool]) -> None:
        for item, judged in compared.items():
            name = output_of(item)  # of a list any item stands for it
            self._compared[name] = judged or self._compared.get(name, False)

    @property
    def dtypes_drawn(self) -> list[str]:
        """The dtypes of the cases."""
        return sorted({dtype for _, dtype, _ in self._structures})

    def tried(self, above: int = 0, most: int | None = None, dtype: str = "") -> Tried:
        """Return what the kernel's verdicts rest on, of cases of some sizes.

        Args:
            above: their largest tensors have more elements.
            most: and at most these; None for any number.
            dtype: of their data; "" for any.
        """
        counts = [
            count
            for (size, of, _), count in self._structures.items()
            if above < max(size, 1) <= (most or math.inf) and dtype in ("", of)
        ]
        times = [drawn for drawn, *_ in counts if drawn]
        return Tried(
            cases=sum(cases for _, cases, _, _ in counts),
            structures=len(times),
            once=times.count(1),
            seconds=sum(seconds for _, _, seconds, _ in counts),
            above=above,
            most=most,
            dtype=dtype,
            worst=max((worst for *_, worst in counts), default=0.0),
        )

    def note(self, text: str, times: int = 1) -> None:
        """Count something suspicious that violates nothing."""
        with self.lock:
            self._notes[text] += times

    def notice(self, text: str) -> None:
        """Keep something to tell, once."""
        self.notices.setdefault(text, False)

    def unreported(self) -> list[str]:
        """Return the notices not reported yet, and count them as reported."""
        with self.lock:
            texts = [text for text, reported in self.notices.items() if not reported]
            self.notices.update(dict.fromkeys(texts, True))
        return texts

    def refusals(self) -> tuple[Refusal, ...]:
        """Return what the kernel declined, each with its remedy."""
        return self._refusals.told(self.dtypes)

    def notes(self) -> tuple[Note, ...]:
        """Return what was suspicious, each with how often it was."""
        return tuple(Note(text, n) for text, n in sorted(self._notes.items()))

    def tallies(
        self, findings: list[Finding], in_force: frozenset[str]
    ) -> dict[str, ContractTally]:
        """Return the tally of every contract class in force, in order."""
        names = [c.id for c in ATTRIBUTION if c.id in in_force]
        idle = bool(self.uncompared(findings, "no case"))
        return {name: self._tally(name, findings, idle=idle) for name in names}

    def _tally(
        self, name: str, findings: list[Finding], *, idle: bool
    ) -> ContractTally:
        kept, broken = self._kept[name], self._broken[name]
        undecided = self._undecided[name]
        shown = [
            (s.contract, f.state, replace(s, kernel="").symptom)
            for f in findings
            for s in f.signatures
        ]
        states = [state for contract, state, _ in shown if contract == name]
        unsettled = any(s not in ATTRIBUTED for s in states)
        # A failure whose class was not attributed in time may be one of this class.
        open_ = name in DIAGNOSABLE and any(map(_is_open, findings))
        if any(s in ATTRIBUTED for s in states):
            verdict = Verdict.VIOLATES
        elif name not in self.classes:
            return ContractTally(Verdict.NOT_APPLICABLE)
        elif self.errors or self.needs_gpu:
            verdict = Verdict.ERROR
        elif kept and not (unsettled or open_ or idle):
            verdict = Verdict.CONFORMS
        elif kept or undecided or broken or unsettled:
            # A failure that was not confirmed leaves the question open, and so does
            # memory that was left alone by a kernel of which no value was compared.
            verdict = Verdict.UNDER_SPECIFIED
        else:
            verdict = Verdict.NOT_APPLICABLE
        failed = 0 if verdict is Verdict.CONFORMS else broken
        if verdict is Verdict.UNDER_SPECIFIED:
            # Those that are findings of other classes are known not to be of this one.
            others = {s for c, state, s in shown if c != name and state in ATTRIBUTED}
            failed = max(0, broken - sum(self._failing[symptom] for symptom in others))
            return ContractTally(verdict, kept + failed, undecided, failed)
        if verdict is Verdict.VIOLATES:
            # Which class a failure breaks is known once it is diagnosed, which few are.
            own = {symptom for contract, _, symptom in shown if contract == name}
            failed = max(broken, sum(self._failing[symptom] for symptom in own))
        return ContractTally(verdict, kept + max(broken, failed), undecided, failed)


def _is_open(finding: Finding) -> bool:
    """Whether time ran out before the class of a failure was attributed."""
    stands = finding.state in ATTRIBUTED | {State.NEW} and not finding.is_explained
    return stands and finding.signature.contract in DIAGNOSABLE


def _has_elements(case: Case) -> bool:
    return all(0 not in spec.shape for spec in case.tensors.values())
