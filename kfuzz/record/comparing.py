"""Recordings side by side: each case in one class, and what arbitrates."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kfuzz.record.recording import Entry, Recorded, Recording


class Told(StrEnum):
    """What becomes of one case on several devices.

    Attributes:
        EQUAL: equal bits.
        ALLOWED: different bits, all admitted; `Case.why` says what the cause is.
        OUTSIDE: some device is outside; the clause and the device are named.
        ALL_OUTSIDE: every device is outside: the contract or oracle is suspect.
        EXACT: different values where one alone is admitted, yet none was charged.
        REFUSED: not the same inputs, so that nothing follows.
        UNJUDGED: some device could not be judged.
    """

    EQUAL = "equal bits"
    ALLOWED = "different, allowed"
    OUTSIDE = "outside"
    ALL_OUTSIDE = "all outside"
    EXACT = "different where exactness is demanded"
    REFUSED = "refused"
    UNJUDGED = "not judged"


FAULTS = (Told.OUTSIDE, Told.ALL_OUTSIDE, Told.EXACT)


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
        environment: versions in which the others differ from the first.
        cases: those that all have.
        unpaired: kernels or cases that not all have, one line each.
    """

    devices: tuple[str, ...]
    environment: tuple[str, ...]
    cases: tuple[Case, ...]
    unpaired: tuple[str, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Cases by class."""
        found = Counter(str(c.told) for c in self.cases)
        return {str(t): found[str(t)] for t in Told if found[str(t)]}


def compare(recordings: Sequence[Recording]) -> Compared:
    """Compare recordings by the cases that all of them have."""
    names = tuple(f"{chr(65 + i)}: {r.device}" for i, r in enumerate(recordings))
    first = recordings[0].header.fingerprint
    environment = tuple(
        f"{name}: {line}"
        for name, other in zip(names[1:], recordings[1:], strict=True)
        for line in first.differences(other.header.fingerprint)
    )
    cases: list[Case] = []
    unpaired: list[str] = []
    for place in dict.fromkeys(k for r in recordings for k in r.kernels):
        found = [r.kernels.get(place) for r in recordings]
        kernels = [k for k in found if k is not None]
        if len(kernels) < len(recordings):
            lacking = [n[0] for n, k in zip(names, found, strict=True) if k is None]
            unpaired.append(f"{place[1]} of {place[0]}: not in {', '.join(lacking)}")
            continue
        entries = [{e.key: e for e in k.entries} for k in kernels]
        common = [key for key in entries[0] if all(key in e for e in entries)]
        left = len({key for e in entries for key in e}) - len(common)
        if left:
            unpaired.append(f"{place[1]} of {place[0]}: {left} cases not in all")
        cases += [_case(kernels, [e[key] for e in entries], names) for key in common]
    return Compared(names, environment, tuple(cases), tuple(unpaired))


def _case(
    kernels: Sequence[Recorded], entries: Sequence[Entry], names: Sequence[str]
) -> Case:
    told, why, contract = _told(kernels, entries, names)
    one = kernels[0]
    return Case(one.operator, one.name, entries[0].key, told, why, contract)


def _told(
    kernels: Sequence[Recorded], entries: Sequence[Entry], names: Sequence[str]
) -> tuple[Told, str, str]:
    pairs = list(zip(names, entries, strict=True))
    unjudged = [(n, e) for n, e in pairs if e.outcome == "unjudged"]
    if unjudged:
        return Told.UNJUDGED, _listed(unjudged), ""
    if len({e.inputs for e in entries}) > 1:
        return Told.REFUSED, "the inputs as made differ", ""
    outside = [(n, e) for n, e in pairs if e.outcome == "outside"]
    if outside:
        clauses = ", ".join(sorted({e.contract for _, e in outside}))
        if len(outside) == len(pairs):
            return Told.ALL_OUTSIDE, f"{clauses} or its oracle is suspect", clauses
        return Told.OUTSIDE, _listed(outside), clauses
    causes: dict[str, None] = {}
    for other, entry in zip(kernels[1:], entries[1:], strict=True):
        cause = _cause(kernels[0], other, entries[0], entry)
        if cause == _EXACT:
            return Told.EXACT, "one value alone is admitted", ""
        if cause:
            causes[cause] = None
    if not causes:
        return Told.EQUAL, "", ""
    return Told.ALLOWED, "; ".join(causes), ""


_EXACT = "exact"


def _listed(entries: Sequence[tuple[str, Entry]]) -> str:
    return "; ".join(f"{n}: {e.contract} {e.message}".strip() for n, e in entries)


def _cause(a: Recorded, b: Recorded, x: Entry, y: Entry) -> str:
    """Return why two admitted results differ, "" if they do not."""
    pairs = list(zip(x.results, y.results, strict=False))
    unlike = [(r, s) for r, s in pairs if r.bits != s.bits]
    if not unlike:
        return ""
    values = [(r, s) for r, s in unlike if r.values != s.values]
    if not values:
        return "signs of zeros or payloads of NaN"
    if any(r.exact and s.exact and r.allowed == s.allowed for r, s in values):
        return _EXACT
    if x.unlike or y.unlike:
        return "repeats on one device differ, too"
    if all(r.flushed == s.flushed for r, s in values):
        return "flushed subnormals"
    probes = _probed_apart(a, b, {r.dtype for r, _ in values})
    if x.subnormals and "subnormals" in probes:
        return "flushed subnormals"
    if "order" in probes:
        return "order of additions"
    if "fused" in probes:
        return "several operations rounded as one"
    return "within the tolerance; no probe tells the cause"


def _probed_apart(a: Recorded, b: Recorded, dtypes: set[str]) -> set[str]:
    """Return the probes that found different arithmetic, in formats of results."""
    return {
        name
        for key in a.probes.keys() & b.probes.keys()
        for name, dtype in [key.split("/")[:2]]
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
