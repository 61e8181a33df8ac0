"""What a kernel declines: which aspect of the cases it raised on may be why."""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from kfuzz.contracts.core_domain import GIVEN, RANK, WITHOUT
from kfuzz.core.event import Refusal
from kfuzz.core.verdict import CaseReport, Kind

_REMEDIES: Final = {
    "non-contiguous input": 'layouts="contiguous"',
    "non-contiguous destination": 'layouts="contiguous"',
    "storage offset": 'layouts="contiguous" (or "inner_contiguous")',
    "zero-size input": 'shape_class="N >= 1 and M >= 1"',
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

    dtypes: tuple[str, ...]
    _taken: set[frozenset[str]] = field(default_factory=set)
    _in_core: set[str] = field(default_factory=set)
    _refused: Counter[tuple[str, str, _Aspects]] = field(default_factory=Counter)
    _limits: dict[str, str] = field(default_factory=dict)
    _examples: dict[str, str] = field(default_factory=dict)

    def take(self, report: CaseReport) -> None:
        """Count what one case teaches."""
        failure = report.failure
        if report.refusal is not None:
            cause = _NUMBER.sub("", report.example)
            self._examples.setdefault(cause, report.example)
            self._refused[report.refusal, cause, report.aspects] += 1
            if report.limit:
                self._limits[report.refusal] = f'shape_class="{report.limit}"'
        elif failure is not None and failure.kind is Kind.RAISES:
            self._in_core.add(_NUMBER.sub("", failure.message))
        else:
            self._taken.add(frozenset(report.aspects))

    def told(self) -> tuple[Refusal, ...]:
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
        return tuple(
            Refusal(
                reason, n, self._remedy(reason, found), self._examples[causes[reason]]
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
            found: Counter[frozenset[str]] = Counter()
            for aspects, cases in left.items():
                fresh = [some for some in _up_to_two(aspects) if some not in taken]
                found.update(dict.fromkeys(fresh, cases))
            if not found:
                yield _OPEN, left.total()
                return
            most = max(found, key=lambda some: (found[some], -len(some)))
            have = next(aspects for aspects in left if most <= {*aspects})
            yield " with ".join(a for a in have if a in most), found[most]
            left = Counter({a: n for a, n in left.items() if not most <= {*a}})

    def _remedy(self, reason: str, reasons: Collection[str]) -> str:
        """Return the declaration that makes a refusal explicit, "" if none does."""
        if reason in self._limits:
            return self._limits[reason]
        if " with " in reason:
            return ""
        if reason.startswith(_DTYPE):
            kept = tuple(d for d in self.dtypes if f"{_DTYPE}{d}" not in reasons)
            return f"dtypes={kept!r}" if kept else ""
        if reason.startswith(RANK):
            return f"ranks= without {reason.removeprefix(RANK).split()[0]}"
        if reason.startswith(WITHOUT):
            name = reason.removeprefix(WITHOUT)
            return f"no default None for the parameter {name}"
        if reason.startswith(GIVEN):
            name = reason.removeprefix(GIVEN)
            return (
                f"no {name}: leave the parameter out of the signature, or of the "
                "binding"
            )
        return _REMEDIES.get(reason, "")


def _up_to_two(aspects: Collection[str]) -> Iterator[frozenset[str]]:
    for few in (1, 2):
        yield from map(frozenset, combinations(aspects, few))
