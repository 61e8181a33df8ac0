"""A calibration as text, and as the JSON that a grade reads."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, TextIO

from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.core.calibration import Calibration, Outcome, Role, Soundness
from kfuzz.core.codec import encode
from kfuzz.execution.device.backends import named
from kfuzz.report.layout import Section, text_page


class Progress:
    """Counts witnesses on one line of a terminal; says nothing elsewhere."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._shown = out.isatty()
        self._count = 0
        self._faults = 0

    def feed(self, outcome: Outcome) -> None:
        """Take the next witness."""
        self._count += 1
        self._faults += bool(outcome.fault)
        if self._shown:
            text = f"\r{self._count} witnesses, {self._faults} contradict a contract "
            print(text, end="", file=self._out, flush=True)


def document(made: Calibration) -> dict[str, Any]:
    """Return what `kfuzz calibrate --format json` prints."""
    return {"calibration": encode(made)}


def lines(made: Calibration) -> list[str]:
    """Return a calibration as text: the table, then names."""
    roles = Counter(o.role for o in made.outcomes)
    host = made.fingerprint
    title = (
        f"{roles[Role.CONFORMING]} conforming and {roles[Role.VIOLATING]} violating "
        f"witnesses, {roles[Role.IMPOSTOR]} trivial baselines, "
        f"on {host.device or made.device}"
    )
    unsound = [f"{c.identifier}: {p}" for c in made.unsound for p in c.problems]
    sections = [
        Section("contracts", rows=list(_rows(made)), numbers=range(1, 6)),
        Section("unsound", unsound),
        Section(
            "trivial baselines that nothing rejected",
            [f"{o.kernel}: {o.fault}" for o in made.admitted],
        ),
        Section(
            "uncalibrated, which does not count in a grade", list(_uncalibrated(made))
        ),
    ]
    return text_page(title, _facts(made), sections)


def _facts(made: Calibration) -> Iterator[tuple[str, str]]:
    host = made.fingerprint
    yield "versions", f"torch {host.torch}, triton {host.triton or 'none'}"
    interpreted = {
        o.cases
        for o in made.outcomes
        if o.role is Role.CONFORMING and not named(o.backend).has.native
    }
    fewer = f", {max(interpreted)} in Triton's interpreter" if interpreted else ""
    yield (
        "budget",
        f"seed {made.seed}, at most {made.cases} cases to find a fault, "
        f"{made.conforming_cases} on a conforming witness{fewer}",
    )
    if made.unsearched:
        yield "interrupted", f"{made.unsearched} witnesses were not searched"
    states = Counter(c.state for c in made.contracts)
    counts = ", ".join(f"{states[s]} {s}" for s in Soundness)
    yield "in all", f"{len(made.contracts)} contracts: {counts}"


def _rows(made: Calibration) -> Iterator[tuple[str, ...]]:
    """Yield a row for each class, below a header."""
    by_class = defaultdict(list)
    for contract in made.contracts:
        by_class[contract.identifier.partition("/")[0]].append(contract)
    order = {c.id: i for i, c in enumerate(ATTRIBUTION)}
    yield ("class", "sound", "unsound", "uncalibrated", "conforming", "violating")
    for name in sorted(by_class, key=lambda n: order.get(n, len(order))):
        states = Counter(c.state for c in by_class[name])
        counts = (
            *(states[s] for s in Soundness),
            sum(len(c.conforming) for c in by_class[name]),
            sum(len(c.violating) for c in by_class[name]),
        )
        yield (name, *map(str, counts))


def _uncalibrated(made: Calibration) -> Iterator[str]:
    """Yield the contracts without a pair, those of one class and reason together."""
    grouped = defaultdict(list)
    for contract in made.contracts:
        if contract.state is Soundness.UNCALIBRATED:
            name, _, operator = contract.identifier.partition("/")
            grouped[name, contract.problems].append(operator)
    for (name, problems), operators in grouped.items():
        yield f"{name}: {'; '.join(problems)}: {', '.join(operators)}"
