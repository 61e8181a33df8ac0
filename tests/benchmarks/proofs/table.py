"""Tables of what was proved, and of what a search says to it."""

import re
from collections import Counter
from collections.abc import Iterator
from statistics import median
from typing import Any, Final

from kfuzz.core.proof import Proven
from kfuzz.prove.examined import REFUTING

# What a search shows that no kernel has of which the property is proved.
_BREAKING: Final = {
    "loads in bounds": {"read_outside"},
    "stores in bounds": {"write_outside"},
    "stores of programs apart": {"race"},
    "results stored whole": {"unwritten"},
}
_REASONS: Final = 12


def contradictions(state: dict[str, Any]) -> list[str]:
    """Return what is proved for all sizes and broken by a search."""
    return [
        f"{unit}: {name} is proved, and a search shows {kind}"
        for unit, made in state.items()
        for name, answer in made["properties"].items()
        if answer == Proven.ALL_SIZES
        for kind in sorted(_BREAKING.get(name, set()) & set(made.get("found", ())))
    ]


def tables(state: dict[str, Any]) -> str:
    """Return all tables, as Markdown."""
    lines: list[str] = []
    for title, chosen in (
        ("correct kernels", {k: v for k, v in state.items() if v["conforming"]}),
        ("faults", {k: v for k, v in state.items() if not v["conforming"]}),
    ):
        if chosen:
            lines += [f"\n{title}: {len(chosen)}\n", *_by_property(chosen)]
            lines += _cost(chosen)
    faults = {k: v for k, v in state.items() if not v["conforming"]}
    if faults:
        lines += _shown(faults)
    lines += _open(state)
    found = contradictions(state)
    lines += ["", f"contradictions: {len(found)}", *found]
    return "\n".join(lines)


def kernel_table(state: dict[str, Any]) -> str:
    """Return a row for each kernel: what is decided, and why the rest is open."""
    lines = [
        "| kernel | properties | decided | for all sizes | open |",
        "|---|---|---|---|---|",
    ]
    for unit, made in state.items():
        answers = Counter(made["properties"].values())
        decided = sum(answers.values()) - answers[str(Proven.OPEN)]
        why = {
            _short(made["why"].get(name, ""))
            for name, answer in made["properties"].items()
            if answer == Proven.OPEN
        }
        lines.append(
            f"| {unit} | {sum(answers.values())} | {decided} | "
            f"{answers[str(Proven.ALL_SIZES)]} | {'; '.join(sorted(why))} |"
        )
    return "\n".join(lines)


def _by_property(units: dict[str, Any]) -> Iterator[str]:
    names = dict.fromkeys(n for made in units.values() for n in made["properties"])
    yield "| property | " + " | ".join(map(str, Proven)) + " |"
    yield "|---|" + "---|" * len(Proven)
    total: Counter[str] = Counter()
    for name in names:
        counts = Counter(
            made["properties"][name]
            for made in units.values()
            if name in made["properties"]
        )
        total += counts
        yield f"| {name} | " + " | ".join(str(counts[str(a)]) for a in Proven) + " |"
    yield "| all | " + " | ".join(str(total[str(a)]) for a in Proven) + " |"
    count = sum(total.values())
    if count:
        every = total[str(Proven.ALL_SIZES)]
        yield f"\n{100 * every / count:.0f} % for all sizes, "
        yield f"{100 * (count - total[str(Proven.OPEN)]) / count:.0f} % decided"


def _cost(units: dict[str, Any]) -> Iterator[str]:
    solver = [made["solver_s"] for made in units.values() if "solver_s" in made]
    whole = [made["cpu_s"] for made in units.values() if "cpu_s" in made]
    if solver:
        yield f"\nsolver: median {median(solver):.2f} s, most {max(solver):.1f} s"
        yield f"in all: median {median(whole):.2f} s, most {max(whole):.1f} s"


def _shown(units: dict[str, Any]) -> Iterator[str]:
    """Yield what became of the properties that a search breaks."""
    yield "\n| broken by the search | " + " | ".join(map(str, Proven)) + " |"
    yield "|---|" + "---|" * len(Proven)
    for name, kinds in _BREAKING.items():
        broken = [made for made in units.values() if kinds & set(made.get("found", ()))]
        counts = Counter(
            made["properties"].get(name, str(Proven.OPEN)) for made in broken
        )
        yield f"| {name} | " + " | ".join(str(counts[str(a)]) for a in Proven) + " |"


def _open(state: dict[str, Any]) -> Iterator[str]:
    reasons = Counter(
        _short(made["why"].get(name, ""))
        for made in state.values()
        for name, answer in made["properties"].items()
        if answer == Proven.OPEN
    )
    if reasons:
        yield "\nopen because\n"
        yield from (f"* {count}: {why}" for why, count in reasons.most_common(_REASONS))


def _short(why: str) -> str:
    """Return a reason without the names and lines of a kernel."""
    why = re.sub(r"; \d+ cases? do.*$", "", why)
    why = re.sub(r" \(line \d+\)", "", why)
    why = re.sub(r"\w+_ptr\b|leave \w+|, \w+ may", lambda m: m[0].split()[0][:5], why)
    return why.partition(":")[0] if "not understood" not in why else why


_ = REFUTING
