"""A calibration as text, and as the JSON that a grade reads."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, TextIO

from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.core.calibration import Calibration, Outcome, Role, Soundness
from kfuzz.core.codec import encode


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


def lines(made: Calibration) -> Iterator[str]:
    """Yield a calibration as text: the table, then names."""
    roles = Counter(o.role for o in made.outcomes)
    host = made.fingerprint
    yield (
        f"{roles[Role.CONFORMING]} conforming and {roles[Role.VIOLATING]} violating "
        f"witnesses, {roles[Role.IMPOSTOR]} impostors, on {host.device or made.device}"
    )
    interpreted = {
        o.cases
        for o in made.outcomes
        if o.role is Role.CONFORMING and o.backend == "interpret"
    }
    fewer = f", {max(interpreted)} in Triton's interpreter" if interpreted else ""
    yield (
        f"torch {host.torch}, triton {host.triton or 'none'}; seed {made.seed}, at most"
        f" {made.cases} cases to find a fault, {made.conforming_cases} on a conforming "
        f"witness{fewer}"
    )
    if made.unsearched:
        yield f"interrupted: {made.unsearched} witnesses were not searched"
    yield ""
    yield from _table(made)
    if made.unsound:
        yield ""
        yield "unsound:"
        for contract in made.unsound:
            for problem in contract.problems:
                yield f"  {contract.identifier}: {problem}"
    if made.admitted:
        yield ""
        yield "impostors that nothing refused:"
        for outcome in made.admitted:
            yield f"  {outcome.kernel}: {outcome.fault}"
    yield from _uncalibrated(made)
    yield ""
    states = Counter(c.state for c in made.contracts)
    counted = ", ".join(f"{states[s]} {s}" for s in Soundness)
    yield f"{len(made.contracts)} contracts: {counted}"


def _table(made: Calibration) -> Iterator[str]:
    """Yield a row for each class."""
    by_class = defaultdict(list)
    for contract in made.contracts:
        by_class[contract.identifier.partition("/")[0]].append(contract)
    order = {c.id: i for i, c in enumerate(ATTRIBUTION)}
    head = ("class", "sound", "unsound", "uncalibrated", "conforming", "violating")
    yield "  ".join((head[0].ljust(8), *head[1:]))
    for name in sorted(by_class, key=lambda n: order.get(n, len(order))):
        states = Counter(c.state for c in by_class[name])
        counts = (
            *(states[s] for s in Soundness),
            sum(len(c.conforming) for c in by_class[name]),
            sum(len(c.violating) for c in by_class[name]),
        )
        cells = (
            str(n).rjust(len(h)) for n, h in zip(counts, head[1:], strict=True)
        )  # fmt: skip
        yield "  ".join((name.ljust(8), *cells))


def _uncalibrated(made: Calibration) -> Iterator[str]:
    """Yield the contracts without a pair, those of one class and reason together."""
    grouped = defaultdict(list)
    for contract in made.contracts:
        if contract.state is Soundness.UNCALIBRATED:
            name, _, operator = contract.identifier.partition("/")
            grouped[name, contract.problems].append(operator)
    if grouped:
        yield ""
        yield "uncalibrated, which does not count in a grade:"
    for (name, problems), operators in grouped.items():
        yield f"  {name}: {'; '.join(problems)}: {', '.join(operators)}"
