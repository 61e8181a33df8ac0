"""Recordings side by side: each case in one class, and what arbitrates."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from kfuzz.contracts.operators import OPERATORS
from kfuzz.features.lab.record.recording import Entry, Recorded, Recording, general
from kfuzz.report.text import Section, one_line, text_page


class Told(StrEnum):
    """What becomes of one case on several devices.

    Attributes:
        EQUAL: equal bits.
        ALLOWED: different bits, all admitted; `Case.why` says what the cause is.
        OUTSIDE: some device is outside; the clause and the device are named.
        ALL_OUTSIDE: every device is outside: the contract or oracle is suspect.
        EXACT: some device is outside where one value alone is admitted.
        REFUSED: some device's kernel declines the input.
        UNLIKE: not the same inputs or outputs, so that nothing follows.
        UNJUDGED: some device could not be judged.
    """

    EQUAL = "equal bits"
    ALLOWED = "different, allowed"
    OUTSIDE = "outside"
    ALL_OUTSIDE = "all outside"
    EXACT = "different where exactness is demanded"
    REFUSED = "refused"
    UNLIKE = "not the same case"
    UNJUDGED = "not judged"


FAULTS: Final = (Told.OUTSIDE, Told.ALL_OUTSIDE, Told.EXACT)
IDLE: Final = (Told.REFUSED, Told.UNLIKE, Told.UNJUDGED)
"""Classes of cases in which no results were compared."""


@dataclass(frozen=True)
class Case:
    """One case of one kernel.

    Attributes:
        operator: the operator.
        kernel: the kernel's name.
        key: hash of the recipe.
        told: its class.
        why: the cause, or the clause and the device.
        contract: the clause, "" where none arbitrates.
    """

    operator: str
    kernel: str
    key: str
    told: Told
    why: str = ""
    contract: str = ""


@dataclass(frozen=True)
class Compared:
    """Recordings, compared.

    Attributes:
        devices: what each was made on.
        environment: in what the others differ from the first besides results.
        cases: those that all have.
        unpaired: kernels or cases that not all have, and why, one line each.
        declared: what the others declare differently from the first.
    """

    devices: tuple[str, ...]
    environment: tuple[str, ...]
    cases: tuple[Case, ...]
    unpaired: tuple[str, ...]
    declared: tuple[str, ...] = ()

    def of(self, told: Told) -> list[Case]:
        """Return the cases of one class."""
        return [case for case in self.cases if case.told is told]

    @property
    def counts(self) -> dict[str, int]:
        """Cases by class."""
        found = Counter(c.told for c in self.cases)
        return {str(told): found[told] for told in Told if found[told]}


def compare(recordings: Sequence[Recording]) -> Compared:
    """Compare recordings by the cases that all of them have."""
    names = tuple(f"{chr(65 + i)}: {r.device}" for i, r in enumerate(recordings))
    first = recordings[0].header.fingerprint
    environment = [
        f"{name[0]}: {line}"
        for name, other in zip(names[1:], recordings[1:], strict=True)
        for line in first.differences(other.header.fingerprint)
    ]
    cases: list[Case] = []
    unpaired: list[str] = []
    declared: list[str] = []
    for place in dict.fromkeys(k for r in recordings for k in r.kernels):
        kernel = f"{place[1]} of {place[0]}"
        own = [r.kernels.get(place) for r in recordings]
        claims = next(k for k in own if k is not None).claims
        kernels = []
        lacking = []
        for name, one, r in zip(names, own, recordings, strict=True):
            if one is not None and one.problem:
                unpaired.append(f"{kernel}: {name[0]} ended early: {one.problem}")
            if found := one or general(place, claims, r.kernels):
                kernels.append(found)
            else:
                lacking.append(name[0])
        if lacking:
            unpaired.append(f"{kernel}: not in {', '.join(lacking)}")
            continue
        for name, other in zip(names[1:], kernels[1:], strict=True):
            apart = declared_apart(kernels[0].claims, other.claims)
            for keyword, a, b in apart:
                declared.append(f"{kernel}: {keyword} is {a} on A, {b} on {name[0]}")
        entries = [{e.key: e for e in k.entries} for k in kernels]
        common = [key for key in entries[0] if all(key in e for e in entries)]
        left = len({key for e in entries for key in e}) - len(common)
        if left and None not in own:
            unpaired.append(f"{kernel}: {left} cases not in all")
        for key in common:
            of = [e[key] for e in entries]
            told, why, contract = _told(kernels, of, names)
            cases.append(Case(*place, key, told, why, contract))
    return Compared(
        names, tuple(environment), tuple(cases), tuple(unpaired), tuple(declared)
    )


def declared_apart(
    here: Mapping[str, str], there: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """Return what is declared differently in two places: keyword, here, there."""
    default = "the default"
    return [
        (keyword, a, b)
        for keyword in dict.fromkeys((*here, *there))
        if (a := here.get(keyword, default)) != (b := there.get(keyword, default))
    ]


def _told(
    kernels: Sequence[Recorded], entries: Sequence[Entry], names: Sequence[str]
) -> tuple[Told, str, str]:
    pairs = list(zip(names, entries, strict=True))
    for outcome, told in (("unjudged", Told.UNJUDGED), ("refused", Told.REFUSED)):
        if some := [(n, e) for n, e in pairs if e.outcome == outcome]:
            return told, _listed(some), ""
    if len({e.inputs for e in entries}) > 1:
        return Told.UNLIKE, "the inputs as made differ", ""
    outside = [(n, e) for n, e in pairs if e.outcome == "outside"]
    if outside:
        clauses = ", ".join(sorted({e.contract for _, e in outside}))
        if len(outside) == len(pairs):
            return Told.ALL_OUTSIDE, f"{clauses} or its oracle is suspect", clauses
        missed = [r for _, e in outside for r in e.results if r.missed]
        exact = bool(missed) and all(r.exact for r in missed)
        return Told.EXACT if exact else Told.OUTSIDE, _listed(outside), clauses
    forms = [{r.name: (r.dtype, r.shape) for r in e.results} for e in entries]
    if any(form != forms[0] for form in forms):
        return Told.UNLIKE, "names, formats or shapes of the outputs differ", ""
    causes = dict.fromkeys(
        _cause(kernels[0], other, entries[0], entry)
        for other, entry in zip(kernels[1:], entries[1:], strict=True)
    )
    causes.pop("", None)
    if not causes:
        return Told.EQUAL, "", ""
    return Told.ALLOWED, "; ".join(causes), ""


# What probes that found different arithmetic explain, the likeliest first.
_CAUSES: Final = {
    "order": "order of additions",
    "fused": "several operations rounded as one",
    "accumulator": "format of the accumulator",
    "operands": "rounding of operands",
    "store": "rounding of results",
    "intrinsics": "accuracy of an elementary function",
}


def _listed(entries: Sequence[tuple[str, Entry]]) -> str:
    return "; ".join(
        f"{name[0]}: {f'{e.contract} {e.message}'.strip()}" for name, e in entries
    )


def _cause(a: Recorded, b: Recorded, x: Entry, y: Entry) -> str:
    """Return why two admitted results differ, "" if they do not."""
    others = {s.name: s for s in y.results}
    unlike = [(r, s) for r in x.results if r.bits != (s := others[r.name]).bits]
    if not unlike:
        return ""
    values = [(r, s) for r, s in unlike if r.values != s.values]
    if not values:
        return "signs of zeros or payloads of NaN"
    if x.unlike or y.unlike:
        return "repeats on one device differ, too"
    probes = _probed_apart(a, b, {r.dtype for r, _ in values})
    flushed = all(r.flushed == s.flushed for r, s in values)
    if flushed or (x.subnormals and "subnormals" in probes):
        return "flushed subnormals"
    for probe, cause in _CAUSES.items():
        if probe in probes:
            return cause
    operator = OPERATORS.get(a.operator)
    if operator is not None and operator.relation is not None:
        return "another of several right answers"
    return "within the tolerance; no probe shows the cause"


def _probed_apart(a: Recorded, b: Recorded, dtypes: set[str]) -> set[str]:
    """Return the probes that found different arithmetic, in formats of results."""
    return {
        name
        for key in a.probes.keys() & b.probes.keys()
        for name, dtype, *_ in [f"{key}/".split("/")]
        if a.probes[key] != b.probes[key] and dtype in dtypes
    }


def document(made: Compared) -> dict[str, Any]:
    """Return the JSON form."""
    return {
        "format": 1,
        "devices": list(made.devices),
        "environment": list(made.environment),
        "counts": made.counts,
        "causes": dict(causes(made)),
        "unpaired": list(made.unpaired),
        "declared": list(made.declared),
        "cases": [
            {
                "operator": c.operator, "kernel": c.kernel, "case": c.key,
                "class": str(c.told), "why": c.why, "contract": c.contract,
            }
            for c in made.cases
        ],
    }  # fmt: skip


def causes(made: Compared) -> list[tuple[str, int]]:
    """Return the causes of admitted differences, the most frequent first."""
    found = Counter(c.why for c in made.cases if c.told is Told.ALLOWED)
    return found.most_common()


# A comparison as text.

TITLE: Final = "Devices compared"
# Lines of a section; the JSON has more.
_MOST: Final = 50


def lines(made: Compared) -> list[str]:
    """Return the page for a terminal."""
    return text_page(TITLE, _facts(made), _sections(made))


def _facts(made: Compared) -> list[tuple[str, str]]:
    operators = len({c.operator for c in made.cases})
    counts = [(str(told), str(count)) for told, count in made.counts.items()]
    return [("cases", f"{len(made.cases)} over {operators} operators"), *counts]


def _sections(made: Compared) -> list[Section]:
    faults = [c for told in FAULTS for c in made.of(told)]
    idle = Counter(f"{c.told}: {c.why[:100]}" for told in IDLE for c in made.of(told))
    several = {
        "devices": made.devices,
        "causes of allowed differences": [f"{n} x {why}" for why, n in causes(made)],
        "faults": [f"{c.kernel} {c.key[:12]}: {c.told}: {c.why}" for c in faults],
        "rejected or not judged": [f"{n} x {why}" for why, n in idle.most_common()],
        "not in all recordings": made.unpaired,
        "declared differently, which is no disagreement": made.declared,
        "environment": made.environment,
    }
    return [Section(title, _cut(lines)) for title, lines in several.items()]


def _cut(lines: Sequence[str]) -> list[str]:
    more = len(lines) - _MOST
    rest = [f"… {more} more: `--format json` prints all"] if more > 0 else []
    return [one_line(line) for line in lines[:_MOST]] + rest
