"""Tables of what was proved, and of what a search says to it."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from kfuzz.core.event import Proven

# What a search shows that no kernel has of which the property is proved.
_BREAKING: Final = {
    "loads in bounds": {"read_outside"},
    "stores in bounds": {"write_outside"},
    "stores of programs apart": {"race"},
    "results stored whole": {"unwritten"},
}


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
    faults = {k: v for k, v in state.items() if not v["conforming"]}
    if faults:
        lines += _shown(faults)
    found = contradictions(state)
    lines += ["", f"contradictions: {len(found)}", *found]
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
