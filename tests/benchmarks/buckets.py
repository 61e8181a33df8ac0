"""The findings of each witness with batches off and on: does speed change a verdict?

    python -m tests.benchmarks.buckets --cases 375 --kernels 'relu_*,softmax_*'

Each witness is searched twice, with the same seed and as many rounds of cases: once
without batches, once with a campaign's batches after each round. A finding is what a
campaign calls one (kernel, contract, kind, output, detail), before it is reduced, once
three fresh children have shown it on its case alone. The command fails if a finding
without batches is missing with them, if one is not confirmed alone, or if a correct
kernel has one.
"""

import argparse
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.witnesses.roster import Entry, roster
from kfuzz.core.burst import MEMBERS
from kfuzz.core.calibration import Role
from kfuzz.core.random_streams import Purpose
from kfuzz.core.verdict import Signature, State
from kfuzz.engine.confirm.lifecycle import confirm
from kfuzz.engine.search.batches import prefilter_round
from kfuzz.engine.search.campaign import FINDINGS_PER_KERNEL, FIRST_ROUND, LONGEST_ROUND
from kfuzz.engine.search.case_drawing import round_seed, search_round, strategy_of
from kfuzz.engine.search.guidance import is_climbed
from kfuzz.engine.search.record import Record
from kfuzz.engine.search.round import KernelSearch, Round
from kfuzz.engine.workers.backend import Backend
from kfuzz.engine.workers.children import Place
from kfuzz.engine.workers.runner import Runner
from kfuzz.targets.load import load_all
from tests.helpers.budgets import SIZE_BUDGETS

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = "kfuzz.contracts.witnesses"
HEADER: Final = (
    "| witness | backend | findings | off: cases | on: cases, of them in batches | "
    "with batches alone | missing with batches | not confirmed |"
)


@dataclass(frozen=True)
class Side:
    """One search of a witness.

    Attributes:
        rounds: how many there were.
        states: by finding, whether fresh children confirm it.
        cases: cases judged alone, and items prefiltered.
        screened: of them the members of bursts that passed.
        notes: what the run says besides, members that fail in a burst only among it.
        problem: what kept it from going on, "" if nothing did.
        seconds: how long it took.
    """

    rounds: int
    states: dict[str, str]
    cases: int
    screened: int
    notes: dict[str, int] = field(default_factory=dict)
    problem: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Pair:
    """Both searches of a witness."""

    witness: str
    backend: str
    contract: str
    off: Side
    on: Side

    @property
    def missing(self) -> list[str]:
        """Findings that batches kept from being found."""
        return sorted(self.off.states.keys() - self.on.states.keys())

    @property
    def alone(self) -> list[str]:
        """Findings of the search with batches only."""
        return sorted(self.on.states.keys() - self.off.states.keys())

    @property
    def unconfirmed(self) -> list[str]:
        """Findings that the case alone does not show each time."""
        states = {**self.off.states, **self.on.states}
        return sorted(n for n, s in states.items() if s != State.CONFIRMED)

    @property
    def differs(self) -> bool:
        """Whether batches changed a verdict."""
        alarms = not self.contract and (self.off.states or self.on.states)
        problem = self.off.problem or self.on.problem
        unsure = set(self.unconfirmed) & set(self.alone)
        return bool(self.missing or unsure or alarms or problem)

    def row(self) -> str:
        """Return its row of the table."""
        cells = (
            self.witness, self.backend, len(self.off.states), self.off.cases,
            f"{self.on.cases}, {self.on.screened}", "; ".join(self.alone),
            "; ".join(self.missing), "; ".join(self.unconfirmed),
        )  # fmt: skip
        return "| " + " | ".join(map(str, cells)) + " |"


def named(signature: Signature) -> str:
    """Return a finding's signature but for the kernel, in words."""
    s = signature
    return " ".join(filter(None, (s.contract, str(s.kind), s.output, s.detail)))


def search(
    entry: Entry,
    *,
    cases: int,
    seed: int,
    members: int,
    rounds: int | None = None,
    isolate: str = "auto",
) -> Side:
    """Search one witness as a campaign does, but for reduction.

    Args:
        entry: the witness.
        cases: after so many no round begins, nor after a campaign's number of findings.
        seed: everything drawn depends on it.
        members: most items of a batch; 1 for no batches.
        rounds: how many there are, whatever `cases` says; None for no number.
        isolate: as in `RunConfig`.
    """
    began = time.perf_counter()
    witness = entry.witness
    [loaded] = load_all((f"{PACKAGE}.{witness.module}:{witness.kernel}",), root=ROOT)
    kernel = loaded.kernel
    classes = frozenset(c.id for c in ATTRIBUTION)
    with closing(Backend(entry.backend, isolate=isolate)) as backend:
        backend.quiet = True
        budget = SIZE_BUDGETS[backend.name]
        place = Place(
            backend.device, backend.name, budget, tuple(sorted(classes)), ROOT
        )
        fork = backend.fork if backend.isolated else None
        with closing(Runner(loaded, place, fork)) as runner:
            record = Record(classes, kernel.declaration.dtypes)
            turns = KernelSearch(loaded, runner, budget, record)
            states: dict[str, str] = {}
            problem = ""
            while not problem and (
                turns.rounds < rounds
                if rounds is not None
                else record.cases < cases and len(states) < FINDINGS_PER_KERNEL
            ):
                turn = _round(turns, backend, seed=seed, members=members)
                problem = str(turn.error or "")
                if turn.found is not None:
                    case, report = turn.found
                    assert report.failure is not None
                    signature = report.failure.signature(kernel.name)
                    turns.seen.add(signature)
                    pinned = runner.pin(case)
                    made = confirm(runner, pinned, signature)
                    states[named(signature)] = str(made.state)
    notes = {n.note: n.cases for n in record.notes()}
    seconds = time.perf_counter() - began
    return Side(
        turns.rounds, states, record.cases, record.prefiltered, notes, problem, seconds
    )


def _round(turns: KernelSearch, backend: Backend, *, seed: int, members: int) -> Round:
    """Give a kernel one round of cases, and its batches unless something was found."""
    turn = Round(turns, stop=threading.Event(), deadline=float("inf"))
    kernel, number = turns.loaded.kernel, turns.rounds
    strategy = strategy_of(kernel, turns.budget, without=turns.record.useless_dtypes)
    assert strategy is not None
    search_round(
        strategy, turn.judge, cases=min(FIRST_ROUND << number, LONGEST_ROUND),
        seed_value=round_seed(seed, kernel.name, number), climb=is_climbed(number),
    )  # fmt: skip
    if not turn.over:
        prefilter_round(
            turns, turn, strategy, backend=backend.name, members=members, limit=None,
            seed_value=round_seed(seed, kernel.name, number, Purpose.BATCHES),
        )  # fmt: skip
    turns.rounds += 1
    return turn


def compare(entry: Entry, *, cases: int, seed: int, isolate: str = "auto") -> Pair:
    """Search one witness without and with batches."""

    def side(members: int, rounds: int | None) -> Side:
        return search(
            entry, cases=cases, seed=seed, members=members, rounds=rounds,
            isolate=isolate,
        )  # fmt: skip

    off = side(1, None)
    on = side(MEMBERS, off.rounds)
    witness = entry.witness
    return Pair(witness.kernel, entry.backend, witness.contract, off, on)


def chosen(
    device: str,
    *,
    roles: Sequence[str],
    kernels: Sequence[str],
    backends: Sequence[str],
    every: int,
) -> Iterator[Entry]:
    """Yield the witnesses of some roles and names (globs), every so many of them."""
    fit = (
        entry
        for entry in roster(device)
        if entry.role.value in roles
        and (not backends or entry.backend in backends)
        and any(fnmatchcase(entry.witness.kernel, glob) for glob in kernels)
    )
    yield from (entry for i, entry in enumerate(fit) if i % every == 0)


def main() -> int:
    """Compare, and print the table."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parse.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parse.add_argument("--roles", default="violating,conforming")
    parse.add_argument("--kernels", default="*", help="globs, with commas")
    parse.add_argument("--every", type=int, default=1, help="of so many witnesses one")
    parse.add_argument("--backends", default="", help="with commas; all by default")
    parse.add_argument("--cases", type=int, default=375, help="without batches")
    parse.add_argument("--seed", type=int, default=0)
    parse.add_argument("--seconds", type=float, default=float("inf"), help="in all")
    parse.add_argument("--json", type=Path, help="file for all that was seen")
    options = parse.parse_args()
    deadline = time.monotonic() + options.seconds
    wanted = [role.value for role in Role if role.value in options.roles.split(",")]
    entries = list(
        chosen(
            options.device,
            roles=wanted,
            kernels=options.kernels.split(","),
            backends=[b for b in options.backends.split(",") if b],
            every=options.every,
        )
    )
    print(HEADER + "\n" + "|---" * HEADER.count(" | ") + "|---|", flush=True)
    pairs: list[Pair] = []
    for entry in entries:
        if time.monotonic() >= deadline:
            break
        pairs.append(compare(entry, cases=options.cases, seed=options.seed))
        print(pairs[-1].row(), flush=True)
        if options.json:
            made = json.dumps([asdict(p) for p in pairs], indent=1)
            options.json.write_text(made + "\n")
    wrong = [p.witness for p in pairs if p.differs]
    more = sum(bool(p.alone) for p in pairs)
    screened = sum(p.on.screened for p in pairs)
    print(
        f"{len(pairs)} of {len(entries)} witnesses, {screened} items prefiltered; "
        f"{more} with findings of batches alone, {len(wrong)} where batches change a "
        f"verdict: {', '.join(wrong) or 'none'}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
